"""What a run did, read back from the event file that it wrote."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_rollout_is.engines.optional import require

if TYPE_CHECKING:
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


def read_events(log_dir: str | Path) -> dict[str, list[float]]:
    """Every scalar of the event files in a folder.

    Args:
        log_dir: A logger's ``log_dir``.

    Returns:
        Name to values, in the order of the steps.

    Raises:
        FileNotFoundError: The folder has no event file.
    """
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    if not any(Path(log_dir).glob("events.out.tfevents.*")):
        raise FileNotFoundError(f"no TensorBoard event file in {log_dir}")
    # It logs at level INFO that it has read all there is.
    logging.getLogger("tensorboard").setLevel(logging.WARNING)
    events = EventAccumulator(str(log_dir), size_guidance={"scalars": 0}).Reload()
    return {name: [event.value for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


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
        history: From :func:`read_events`.
        window: Steps that are averaged at either end.

    Raises:
        ImportError: rich is not installed.
    """
    table: Table = require("rich.table", extra="examples").Table("", f"first {window} steps", f"last {window} steps")
    for column in table.columns[1:]:
        column.justify = "right"
    for label, name in ROWS.items():
        table.add_row(label, *first_and_last(history.get(name, ()), window))
    return table
