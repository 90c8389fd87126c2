"""Which runs lie below a folder, and what is said where there is none."""

from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from lightning_rollout_is.report.runs import UnreadableError, folders_of_runs, names_of, prefixes, read_run
from tests.report.written import event_file, run_of, truncate, write_run


def test_runs_are_found_at_any_depth(tmp_path):
    folders = [write_run(tmp_path / name, length=1) for name in ("a/tensorboard", "b/lightning_logs/version_0", "c")]
    write_run(tmp_path / "c" / "nested", length=1)
    assert folders_of_runs(tmp_path) == [*folders, tmp_path / "c" / "nested"]
    assert folders_of_runs(folders[0]) == [folders[0]]


def test_a_folder_without_runs_says_what_to_give(tmp_path):
    (tmp_path / "metrics.csv").touch()
    with pytest.raises(UnreadableError, match=r"no TensorBoard event file .* trainer.logger.log_dir"):
        folders_of_runs(tmp_path)
    with pytest.raises(UnreadableError, match="does not exist"):
        folders_of_runs(tmp_path / "nowhere")
    with pytest.raises(UnreadableError, match=f"is a file; give the folder that holds it, {tmp_path}"):
        folders_of_runs(tmp_path / "metrics.csv")


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["/r/int4/tensorboard", "/r/fp32/tensorboard"], ["int4", "fp32"]),
        (["/r/x/a/lightning_logs/version_0", "/r/x/b/lightning_logs/version_1"], ["a/version_0", "b/version_1"]),
        (["/r/int4/tensorboard"], ["int4"]),
        (["/r/a", "/r/a/tensorboard"], [".", "tensorboard"]),
        (["/r/a", "/r/a/b"], ["a", "b"]),
        ([], []),
    ],
)
def test_names_are_short_and_no_two_the_same(folders, names):
    assert names_of([Path(folder) for folder in folders]) == names


@pytest.mark.parametrize("prefix", ["mismatch/", "", "train/is_", "rollout_is/mismatch/"])
def test_the_prefix_is_found(tmp_path, prefix):
    run = run_of(tmp_path, length=3, prefix=prefix)
    assert run.prefix == prefix
    assert "rollout_is_mean" in run.mismatch
    assert not run.notes


def test_of_two_prefixes_the_fuller_is_shown_and_the_other_named(tmp_path):
    write_run(tmp_path, length=3)
    with SummaryWriter(str(tmp_path), filename_suffix=".2") as writer:
        writer.add_scalar("b/rollout_is_mean", 3.0, 0)
    run = read_run(tmp_path, "run")
    assert run.prefix == "mismatch/"
    assert "more under 'b/': choose with --prefix" in run.notes[0]
    assert list(read_run(tmp_path, "run", "b/").mismatch) == ["rollout_is_mean"]


def test_a_run_without_our_statistics_says_what_it_holds(tmp_path):
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 1.0, 0)
        writer.add_scalar("reward", 1.0, 0)
    with pytest.raises(UnreadableError, match=r"no mismatch statistic .*\(loss, reward\); add RolloutISCallback"):
        read_run(tmp_path, "run")


def test_a_prefix_that_is_not_there_says_what_is(tmp_path):
    write_run(tmp_path, length=1)
    with pytest.raises(UnreadableError, match="no mismatch statistic under the prefix 'is/', but mismatch/mismatch_k"):
        read_run(tmp_path, "run", "is/")


def test_a_file_without_any_scalar_says_why(tmp_path):
    write_run(tmp_path, length=1)
    truncate(event_file(tmp_path), share=0.01)
    with pytest.raises(UnreadableError, match=r"no scalar in its event files; .*cannot be read beyond byte 0"):
        read_run(tmp_path, "run")


def test_one_point_is_said_to_be_one(tmp_path):
    assert "one point only" in run_of(tmp_path / "one", length=1).notes[0]
    assert not run_of(tmp_path / "two", length=2).notes


def test_no_prefix_in_other_curves():
    assert prefixes(["loss", "rollout_is_mean/other"]) == []
