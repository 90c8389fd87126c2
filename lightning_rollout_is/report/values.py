"""The values of a run as a table has them: first, worst, last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lightning_rollout_is.event_files import Curve, finite_points
from lightning_rollout_is.healthy_ranges import RANGES, Grade, HealthyRange
from lightning_rollout_is.report.runs import Run

WINDOW = 5
"""Points that are averaged at either end: one step alone is noise."""


class Cell(NamedTuple):
    """A number, and how it reads."""

    value: float
    grade: Grade | None = None
    step: int | None = None

    @property
    def text(self) -> str:
        """The number in few digits.

        Example:
            >>> Cell(0.99987).text, Cell(5.6731e-14).text, Cell(-0.0).text
            ('0.9999', '5.7e-14', '0')
        """
        if self.value == 0:
            return "0"
        return f"{self.value:.2g}" if 0 < abs(self.value) < 1e-3 else f"{self.value:.4g}"


class Summary(NamedTuple):
    """One curve in three numbers."""

    first: Cell
    """Mean of the first points."""
    worst: Cell
    """The farthest from the ideal; where there is no ideal, from the first."""
    last: Cell
    """Mean of the last points."""
    smallest: Cell
    largest: Cell
    points: int


def summary(curve: Curve, healthy: HealthyRange | None = None) -> Summary | None:
    """Three numbers for a curve; ``None`` where none of its values is finite.

    Example:
        >>> three = summary(Curve(range(4), [1.0, 0.9, 0.2, 0.8]), RANGES["rollout_is_eff_sample_size"])
        >>> three.worst
        Cell(value=0.2, grade='unhealthy', step=2)
    """
    finite = finite_points(curve)
    if not finite.values:
        return None
    first, last = _mean(finite.values[:WINDOW]), _mean(finite.values[-WINDOW:])
    place = max(range(len(finite.values)), key=lambda i: _distance(finite.values[i], first, healthy))
    return Summary(
        _cell(first, healthy),
        _cell(finite.values[place], healthy)._replace(step=finite.steps[place]),
        _cell(last, healthy),
        Cell(min(finite.values)),
        Cell(max(finite.values)),
        len(finite.values),
    )


def telling_values(runs: Sequence[Run]) -> dict[str, list[Summary | None]]:
    """The statistics that matter, side by side: label to one summary a run, ``None`` where it has none."""
    rows = {
        healthy.label: [_summary_of(run.mismatch, name, healthy) for run in runs] for name, healthy in RANGES.items()
    }
    return {label: row for label, row in rows.items() if any(row)}


def all_values(run: Run) -> dict[str, Summary | None]:
    """Every scalar that the run logged, by its full name."""
    return {
        name: summary(run.curves[name], RANGES.get(name.removeprefix(run.prefix)))
        for name in sorted(run.curves, key=lambda name: (not name.startswith(run.prefix), name))
    }


def _summary_of(curves: Mapping[str, Curve], name: str, healthy: HealthyRange) -> Summary | None:
    return summary(curves[name], healthy) if name in curves else None


def _cell(value: float, healthy: HealthyRange | None) -> Cell:
    return Cell(value, None if healthy is None else healthy.grade(value))


def _distance(value: float, first: float, healthy: HealthyRange | None) -> float:
    return abs(value - first) if healthy is None else healthy.distance(value)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
