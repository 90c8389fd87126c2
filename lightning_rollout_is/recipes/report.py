"""What a run did and what to think of it, read back from the event file that it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.report.page import Judged
from lightning_rollout_is.report.runs import read_run
from lightning_rollout_is.report.terminal import print_verdict
from lightning_rollout_is.report.verdict import judge

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ROWS = {
    "reward": "reward",
    "effective sample size": "mismatch/rollout_is_eff_sample_size",
    "KL(rollout || training)": "mismatch/mismatch_kl",
    "K3": "mismatch/mismatch_k3_kl",
    "perplexity ratio": "mismatch/mismatch_ppl_ratio",
    "importance weight, mean": "mismatch/rollout_is_mean",
    "importance weight, max": "mismatch/rollout_is_max",
    "vetoed sequences": "mismatch/rollout_is_veto_fraction",
    "masked tokens": "mismatch/rollout_is_masked_fraction",
}
"""What the summary shows: label, and name in the event file."""


def first_and_last(values: Sequence[float], window: int = 5) -> tuple[str, str]:
    """Mean of the first and of the last few values, as text; a dash where there are none.

    Example:
        >>> first_and_last([0.0, 1.0, 2.0, 3.0], window=2)
        ('0.5', '2.5')
        >>> first_and_last([])
        ('-', '-')
    """
    if not values:
        return "-", "-"
    first, last = values[:window], values[-window:]
    return f"{sum(first) / len(first):.5g}", f"{sum(last) / len(last):.5g}"


def summary_table(history: Mapping[str, Sequence[float]], window: int = 5) -> Table:
    """First and last values of the run as a rich table.

    Args:
        history: From :func:`~lightning_rollout_is.event_files.read_events`.
        window: Steps that are averaged at either end; at most half of the run.

    Raises:
        ImportError: rich is not installed.
    """
    steps = max((len(values) for values in history.values()), default=0)
    window = max(1, min(window, steps // 2))
    ends = [f"{end} {window} steps" if window > 1 else f"{end} step" for end in ("first", "last")]
    table: Table = require("rich.table", extra="examples").Table("", *ends)
    for column in table.columns[1:]:
        column.justify = "right"
    for label, name in ROWS.items():
        table.add_row(label, *first_and_last(history.get(name, ()), window))
    return table


def tell_verdict(log_dir: str | Path, name: str, console: Console) -> None:
    """Say in plain words what is wrong with a run, since when, and what to set; or that nothing is.

    Args:
        log_dir: A logger's ``log_dir``.
        name: What to call the run.
        console: Of rich.

    Raises:
        UnreadableError: The folder holds none of this package's statistics.
        FileNotFoundError: The folder has no event file.
    """
    run = read_run(Path(log_dir), name)
    print_verdict(console, Judged(run, judge(run)))
