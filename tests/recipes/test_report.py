"""What the summary of a run says."""

from rich.console import Console

from lightning_rollout_is.recipes.report import ROWS, first_and_last, summary_table


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


def test_a_run_shorter_than_the_window_averages_what_there_is():
    assert first_and_last([1.0, 2.0], window=5) == ("1.5", "1.5")
