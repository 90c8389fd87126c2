"""The CSV files, one an engine, and what became of a run."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from .grid import OVERRIDES, Run

EVALUATED = "policy_reward"
MISMATCH = {
    "reward": "reward",
    "length": "response_length",
    "k3": "mismatch_k3_kl",
    "kl": "mismatch_kl",
    "chi2_token": "mismatch_chi2_token",
    "chi2_seq": "mismatch_chi2_seq",
    "ess": "rollout_is_applied_eff_sample_size",
    "masked": "rollout_is_masked_fraction",
}
"""Columns, and the names under which the run logs them."""
COLUMNS = ("algorithm", "seed", "step", EVALUATED, *MISMATCH, "gradient_norm")
LAST = 3
"""Evaluations that the final reward is the mean of."""
COLLAPSED_BELOW = 0.5
"""A run has collapsed if its final reward is under this share of its best."""

Row = dict[str, float]
"""By column; one that was not measured at a step is absent."""


Results = dict[Run, list[Row]]


class Outcome(NamedTuple):
    """What became of a run, by the reward of the policy on questions held out."""

    start: float
    """Before the first step."""
    best: float
    """At the best evaluation."""
    worst: float
    """At the worst evaluation after the start."""
    final: float
    """Mean of the last three evaluations."""

    @property
    def collapsed(self) -> bool:
        """Whether the run has lost half of what it once had.

        Example:
            >>> Outcome(start=0.4, best=0.7, worst=0.1, final=0.3).collapsed
            True
        """
        return self.final < COLLAPSED_BELOW * self.best


def outcome(rows: Sequence[Row]) -> Outcome:
    """Sum a run up.

    Example:
        >>> outcome([{"step": 8 * i, EVALUATED: reward} for i, reward in enumerate((0.4, 0.8, 0.3, 0.2, 0.1))])
        Outcome(start=0.4, best=0.8, worst=0.1, final=0.2)
    """
    rewards = [row[EVALUATED] for row in rows if EVALUATED in row]
    return Outcome(rewards[0], max(rewards), min(rewards[1:]), round(mean(rewards[-LAST:]), 6))


def read(folder: Path) -> Results:
    """Every run that lies in a folder; none where there is no such folder."""
    results: Results = {}
    for file in filter(Path.is_file, (folder / f"{engine}.csv" for engine in OVERRIDES)):
        with file.open(newline="") as lines:
            for cells in csv.DictReader(lines):
                run = Run(file.stem, cells.pop("algorithm"), int(cells.pop("seed")))
                results.setdefault(run, []).append({name: float(cell) for name, cell in cells.items() if cell})
    return results


def add(folder: Path, run: Run, rows: Sequence[Row]) -> None:
    """Put a finished run into its engine's file, in one move: whoever is killed leaves the old file or the new."""
    folder.mkdir(parents=True, exist_ok=True)
    results = {known: old for known, old in read(folder).items() if known.engine == run.engine}
    results[run] = list(rows)
    file = folder / f"{run.engine}.csv"
    unfinished = file.with_suffix(".part")
    with unfinished.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for known in sorted(results):
            name = {"algorithm": known.algorithm, "seed": known.seed}
            writer.writerows({**name, **_cells(row)} for row in results[known])
    os.replace(unfinished, file)


def _cells(row: Mapping[str, float]) -> dict[str, str]:
    return {column: format(value, ".4g") for column, value in row.items() if not math.isnan(value)}


def cells_of(results: Results) -> dict[tuple[str, str], list[list[Row]]]:
    """The seeds of each engine and correction."""
    grouped: dict[tuple[str, str], list[list[Row]]] = {}
    for run in sorted(results, key=lambda run: run.seed):
        grouped.setdefault((run.engine, run.algorithm), []).append(results[run])
    return grouped


def band(runs: Iterable[Sequence[Row]], column: str) -> list[tuple[float, float, float, float]]:
    """Step, lowest, median and highest value of a column over the seeds, at each step at which any has one.

    Example:
        >>> band([[{"step": 1, "k3": 0.1}], [{"step": 1, "k3": 0.3}], [{"step": 1, "k3": 0.2}]], "k3")
        [(1, 0.1, 0.2, 0.3)]
    """
    values: dict[float, list[float]] = {}
    for rows in runs:
        for row in rows:
            if column in row:
                values.setdefault(row["step"], []).append(row[column])
    return [(step, min(at), median(at), max(at)) for step, at in sorted(values.items())]


def averaged(rows: Sequence[Row], column: str, window: int) -> list[Row]:
    """The mean of a column over each so many steps, at the last of them.

    Example:
        >>> averaged([{"step": step, "k3": step / 10} for step in (1, 2, 3, 4)], "k3", window=2)
        [{'step': 2, 'k3': 0.15}, {'step': 4, 'k3': 0.35}]
    """
    values: dict[int, list[float]] = {}
    for row in rows:
        if column in row:
            values.setdefault(math.ceil(row["step"] / window) * window, []).append(row[column])
    return [{"step": step, column: round(mean(at), 12)} for step, at in values.items()]
