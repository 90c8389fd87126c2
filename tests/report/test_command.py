"""The command as a user calls it: what it writes, says and returns."""

import os
import re
import subprocess
import sys

import pytest

from lightning_rollout_is.report.command import main
from tests.report.written import damage, event_file, truncate, write_run
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import fit


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def called(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_healthy_run_is_status_0(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a")
    status, out, err = called(capsys, "report", "runs")
    assert status == 0
    assert "HEALTHY  a" in out
    assert "page: report.html" in out
    assert "reading" in err
    assert "✓ HEALTHY" in (tmp_path / "report.html").read_text()


def test_an_unhealthy_run_is_status_1_and_comes_first(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", rollout_is_veto_fraction=lambda step: 0.0 if step < 12 else 0.5)
    status, out, _ = called(capsys, "report", "runs", "--out", "deep/er/page.html")
    assert status == 1
    assert out.index("UNHEALTHY  b") < out.index("HEALTHY  a")
    assert "since step 12" in out
    assert "What to do: relax the veto" in out
    assert (tmp_path / "deep" / "er" / "page.html").is_file()


def test_a_run_to_be_watched_is_status_0(tmp_path, capsys):
    write_run(tmp_path / "a", mismatch_k3_kl=0.003)
    status, out, _ = called(capsys, "report", "a")
    assert status == 0
    assert "WATCH  a" in out


@pytest.mark.parametrize("spoil", [truncate, damage])
def test_a_broken_file_is_reported_as_far_as_it_goes(tmp_path, capsys, spoil):
    write_run(tmp_path / "a", length=100)
    spoil(event_file(tmp_path / "a"))
    status, out, _ = called(capsys, "report", "a")
    assert status == 0
    assert re.search(r"Note: events\S+ cannot be read beyond byte \d+ of \d+", out)


def test_what_cannot_be_read_is_status_2_and_the_rest_is_reported(tmp_path, capsys):
    write_run(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "events.out.tfevents.1").write_bytes(b"rubbish, and more of it")
    status, out, err = called(capsys, "report", "good", "bad", "nowhere")
    assert status == 2
    assert "HEALTHY  good" in out
    assert re.search("not read: .*bad: no scalar in its event files; .*damaged", err)
    assert "not read: nowhere does not exist" in err
    assert "nowhere does not exist" in (tmp_path / "report.html").read_text()


def test_no_run_at_all_is_status_2_and_no_page(tmp_path, capsys):
    status, out, err = called(capsys, "report", tmp_path)
    assert status == 2
    assert out == ""
    assert "no TensorBoard event file" in err
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written_is_status_2(tmp_path, capsys):
    write_run(tmp_path / "a")
    status, out, err = called(capsys, "report", "a", "--out", tmp_path)
    assert status == 2
    assert "cannot write the page" in err
    assert "--out" in err
    assert "page:" not in out


@pytest.mark.parametrize("arguments", [[], ["report"], ["reprot", "a"], ["report", "a", "--colour"]])
def test_wrong_usage_is_status_2(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: lightning-rollout-is" in capsys.readouterr().err


def test_help_documents_the_status(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["report", "--help"])
    out = capsys.readouterr().out
    assert all(f"\n  {status}  " in out for status in (0, 1, 2))


def test_the_same_run_twice_is_one(tmp_path, capsys):
    write_run(tmp_path / "a")
    _, out, _ = called(capsys, "report", "a", tmp_path / "a", tmp_path)
    assert out.count("HEALTHY") == 1


def test_another_prefix_is_found_and_can_be_chosen(tmp_path, capsys):
    write_run(tmp_path / "a", prefix="is/", rollout_is_veto_fraction=0.5)
    assert called(capsys, "report", "a")[0] == 1
    assert called(capsys, "report", "a", "--prefix", "is/")[0] == 1
    status, _, err = called(capsys, "report", "a", "--prefix", "mismatch/")
    assert status == 2
    assert "under the prefix 'mismatch/'" in err


def test_without_rich_it_is_plain_text(tmp_path, capsys, monkeypatch):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b[red]", rollout_is_veto_fraction=0.5)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    status, out, _ = called(capsys, "report", tmp_path)
    assert status == 1
    assert "✕ UNHEALTHY  b[red]\n    Many sequences are vetoed" in out
    assert re.search(r"Vetoed sequences +0.5 / 0.5 / 0.5 +0 / 0 / 0\n", out)
    assert "│" not in out


def test_brackets_in_names_are_no_markup_of_rich(tmp_path, capsys):
    write_run(tmp_path / "b[red]")
    _, out, _ = called(capsys, "report", tmp_path)
    assert out.count("b[red]") == 2


def test_the_program_runs_where_signs_cannot_be_encoded(tmp_path):
    write_run(tmp_path / "a")
    code = "import sys; from lightning_rollout_is.report.command import main; sys.exit(main(['report', 'a']))"
    run = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code],
        capture_output=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONIOENCODING": "ascii", "PATH": ""},
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert b"? HEALTHY  a" in run.stdout


def test_real_runs_of_two_engines_are_told_apart(tmp_path, capsys):
    """An engine that differs by what a quantised one does, and one that differs by rounding; both by a real Trainer."""
    for name, mismatch in {"int4": 0.2, "fp32": 1e-5}.items():
        fit(Policy(), [rollout_batch(seed, rows=400, mismatch=mismatch) for seed in range(30)], tmp_path / name)
    status, out, _ = called(capsys, "report", tmp_path)
    assert status == 0
    assert out.index("! WATCH  int4") < out.index("✓ HEALTHY  fp32")
    assert "K3, nats a token" in out
    assert out.count("What to do") == 1


def test_a_real_run_whose_log_probs_are_shifted_is_unhealthy(tmp_path, capsys):
    batches = [rollout_batch(seed, mismatch=0.1) for seed in range(10)]
    for batch in batches:
        batch["rollout_log_prob"] += 1.5
    fit(Policy(), batches, tmp_path / "shifted")
    status, out, _ = called(capsys, "report", tmp_path)
    assert status == 1
    assert "UNHEALTHY  shifted" in out
    assert "temperature" in out


def test_who_stops_to_read_gets_the_page_and_the_status_all_the_same(tmp_path):
    write_run(tmp_path / "a", mismatch_k3_kl=1.0)
    reader, writer = os.pipe()
    os.close(reader)
    command = [
        sys.executable,
        "-c",
        "import sys; from lightning_rollout_is.report.command import main; sys.exit(main())",
    ]
    run = subprocess.run([*command, "report", "a"], stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert run.returncode == 0
    assert "Traceback" not in run.stderr
    assert "Exception ignored" not in run.stderr
    assert "WATCH" in (tmp_path / "report.html").read_text()
