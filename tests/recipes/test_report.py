"""What the summary of a run says."""

from rich.console import Console

from lightning_rollout_is.recipes.report import ROWS, first_and_last, summary_table, tell_verdict
from tests.report.written import write_run


def test_the_table_shows_both_ends_and_a_dash_for_what_is_not_there():
    history = {"reward": [0.0, 0.5, 0.25, 1.0, 0.75], "mismatch/rollout_is_max": [1.5, 1.25]}
    console = Console(width=100)
    with console.capture() as captured:
        console.print(summary_table(history, window=2))
    lines = {line.split("│")[1].strip(): line.split("│")[2:4] for line in captured.get().splitlines() if "│" in line}
    assert set(lines) == set(ROWS)
    assert [cell.strip() for cell in lines["reward"]] == ["0.25", "0.875"]
    assert [cell.strip() for cell in lines["importance weight, max"]] == ["1.375", "1.375"]
    assert [cell.strip() for cell in lines["masked tokens"]] == ["-", "-"]


def test_the_two_ends_of_a_short_run_do_not_overlap():
    table = summary_table({"reward": [0.0, 0.5, 1.0, 0.25, 0.75]})
    assert [column.header for column in table.columns] == ["", "first 2 steps", "last 2 steps"]
    assert [column.header for column in summary_table({"reward": [0.5]}).columns] == ["", "first step", "last step"]
    assert next(iter(summary_table({"reward": [0.0, 0.5, 1.0]}).columns[2].cells)) == "1"


def test_a_run_shorter_than_the_window_averages_what_there_is():
    assert first_and_last([1.0, 2.0], window=5) == ("1.5", "1.5")


def told(folder, **settings):
    console = Console(width=200)
    with console.capture() as captured:
        tell_verdict(write_run(folder, **settings), "rollout=int4", console)
    return captured.get()


def test_what_is_wrong_is_told_in_words_and_what_to_set(tmp_path):
    said = told(tmp_path, mismatch_k3_kl=0.0012)
    assert said.startswith("! WATCH  rollout=int4\n")
    assert "gives its own tokens other probabilities than the trainer does, since step 0, at every point" in said
    assert "Likely cause: the engine is coarsely quantised" in said
    assert "What to do: sample in more bits: actor_rollout_ref.rollout.dtype: bfloat16" in said


def test_a_clean_run_is_told_to_be_so(tmp_path):
    assert told(tmp_path) == ("✓ HEALTHY  rollout=int4\n    Every value lies in its healthy range: nothing to do.\n")
