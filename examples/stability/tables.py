"""The tables of docs/stability.md."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

from .grid import ALGORITHMS, ENGINES
from .results import EVALUATED, Row, cells_of, outcome, read
from .tried import TRIED

BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"
KL_RULE = 0.1
"""Nats a token, either way, at which RolloutISHealth speaks."""
LENGTH_TIMES_K3 = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Edges of the classes, nats a response."""
OUTCOME = ("seeds", "start", "best", "final", "lowest final", "worst", "collapsed")
NOTHING = "-"


def fill(page: Path, folder: Path) -> None:
    """Put the tables between the two marks of a page.

    Args:
        page: Which has both marks.
        folder: Of the CSV files: of all runs, of what was tried beside the grid, and of the gradients.
    """
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + "\n" + all_tables(folder) + "\n" + END + rest.split(END)[1])


def all_tables(folder: Path) -> str:
    """Every table with the sentence above it."""
    cells = dict(sorted(cells_of(read(folder)).items(), key=lambda item: _order(*item[0])))
    parts = (
        ("What became of the runs. Reward of the policy on 256 questions held out: start, best and final are medians "
         "over seeds; lowest final is of one seed, worst of one evaluation.", outcomes(cells)),
        ("What the curves said: medians over seeds. Steps are the first at which |KL| passed 0.1 nats a token, which "
         "RolloutISHealth warns of, and the first evaluation under half of the best before it.", warnings(cells)),
        ("Effective sample size of the weights that multiply the loss, and share of masked tokens, by length times K3 "
         "of the step, nats a response.", by_product(cells)),
        ("Error of the expected gradient, over the length of the gradient on policy, and two standard errors about it. "
         "Unseen: share of the responses on policy that the engine never gives.", biases(folder / "gradient.csv")),
        ("What was tried beside the grid, and what became of it, as in the first table.", tried(folder / "tried")),
    )  # fmt: skip
    return "\n".join(f"{sentence}\n\n{table}" for sentence, table in parts)


def outcomes(cells: dict[tuple[str, str], list[list[Row]]]) -> str:
    return _table(("engine", "correction", *OUTCOME), [(*key, *_became(runs)) for key, runs in cells.items()])


def tried(folder: Path) -> str:
    lines = []
    for name, setting in TRIED.items():
        cells = cells_of(read(folder / name))
        of_setting = dict.fromkeys((run.engine, run.algorithm) for run in setting.runs())
        lines += [(setting.words, *key, *_became(cells[key])) for key in of_setting if key in cells]
    return _table(("setting", "engine", "correction", *OUTCOME), lines)


def _became(runs: Sequence[Sequence[Row]]) -> tuple[str, ...]:
    ends = [outcome(rows) for rows in runs]
    rewards = [median(getattr(end, name) for end in ends) for name in ("start", "best", "final")]
    rewards += [min(end.final for end in ends), min(end.worst for end in ends)]
    collapsed = f"{sum(end.collapsed for end in ends)} of {len(ends)}"
    return str(len(runs)), *(f"{reward:.2f}" for reward in rewards), collapsed


def warnings(cells: dict[tuple[str, str], list[list[Row]]]) -> str:
    header = ("engine", "correction", "K3, mean", "K3, largest", "chi2, largest", "ESS, mean", "ESS, smallest",
              "masked", "gradient norm, largest", "KL over 0.1 at step", "half lost at step")  # fmt: skip
    summaries: tuple[tuple[str, Callable[[list[float]], float], str], ...] = (
        ("k3", mean, ".2g"), ("k3", max, ".2g"), ("chi2_token", max, ".2g"), ("ess", mean, ".3f"), ("ess", min, ".3f"),
        ("masked", mean, ".1%"), ("gradient_norm", max, ".2g"),
    )  # fmt: skip
    lines = []
    for key, runs in cells.items():
        numbers = [_over_seeds(runs, column, summary, digits) for column, summary, digits in summaries]
        steps = [_typical([first(rows) for rows in runs]) for first in (_warned, half_lost)]
        lines.append((*key, *numbers, *steps))
    return _table(header, lines)


def by_product(cells: dict[tuple[str, str], list[list[Row]]]) -> str:
    bounds = list(pairwise([*LENGTH_TIMES_K3, float("inf")]))
    header = ("correction", *(f"{low:g} to {high:g}" for low, high in bounds))
    lines = []
    for algorithm in ALGORITHMS:
        steps = [row for (_, name), runs in cells.items() if name == algorithm for rows in runs for row in rows[1:]]
        classes = [[row for row in steps if low <= row["length"] * row["k3"] < high] for low, high in bounds]
        if steps:
            lines.append((algorithm, *map(_kept, classes)))
    return _table(header, lines)


def biases(file: Path) -> str:
    rows = list(csv.DictReader(file.read_text().splitlines()))
    corrections = list(dict.fromkeys(row["correction"] for row in rows))
    lines = [
        (engine, k3, f"{float(unseen):.1%}", *(_bias(row) for row in rows if row["engine"] == engine))
        for engine, k3, unseen in dict.fromkeys((row["engine"], row["k3"], row["unseen"]) for row in rows)
    ]
    return _table(("engine", "K3", "unseen", *corrections), lines)


def _bias(row: dict[str, str]) -> str:
    middle, low, high = (f"{float(row[name]):.2f}" for name in ("bias", "low", "high"))
    return middle if low == high else f"{middle} ({low} to {high})"


def half_lost(rows: Sequence[Row]) -> float | None:
    """The first step at which an evaluation is under half of the best before it.

    Example:
        >>> half_lost([{"step": step, EVALUATED: 1 / (1 + step)} for step in range(4)])
        2
    """
    best = 0.0
    for row in rows:
        best = max(best, row.get(EVALUATED, 0.0))
        if row.get(EVALUATED, best) < best / 2:
            return row["step"]
    return None


def _warned(rows: Iterable[Row]) -> float | None:
    return next((row["step"] for row in rows if abs(row.get("kl", 0.0)) > KL_RULE), None)


def _typical(steps: Sequence[float | None]) -> str:
    """Median of those that there are, and how many they are if not all."""
    known = [step for step in steps if step is not None]
    if not known:
        return NOTHING
    return f"{median(known):.0f}" + (f" ({len(known)} of {len(steps)})" if len(known) < len(steps) else "")


def _over_seeds(runs: Sequence[Sequence[Row]], column: str, summary: Callable, digits: str) -> str:
    values = [[row[column] for row in rows if column in row] for rows in runs]
    return format(median(map(summary, values)), digits) if all(values) else NOTHING


def _kept(steps: Sequence[Row]) -> str:
    if not steps:
        return NOTHING
    masked = [row["masked"] for row in steps if "masked" in row]
    size = f"{mean(row['ess'] for row in steps if 'ess' in row):.2f}"
    return f"{size}, {mean(masked):.0%}" if masked else size


def _order(engine: str, algorithm: str) -> tuple[int, int]:
    return list(ENGINES).index(engine), ALGORITHMS.index(algorithm)


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)
