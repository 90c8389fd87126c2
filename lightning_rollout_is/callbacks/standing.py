"""Which values of a run have left their healthy range for good, as far as one can tell, and since when."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from lightning_rollout_is.healthy_ranges import RANGES, Grade

PATIENCE = 3
"""Points in a row outside its healthy range after which a value counts as outside; a run that begins there, at once."""
RECOVERY = 10
"""Points in a row within it after which it no longer does."""


class Value(NamedTuple):
    """One statistic that has a healthy range."""

    number: float
    grade: Grade
    since: int | None
    """First step of those at which it counts as outside; ``None`` where it does not."""
    against: int = 0
    """Points in a row that speak against that, up to the last one."""
    first_against: int = 0
    """Step of the first of them."""


class Standing:
    """Follows the values of a run, by name without prefix."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}

    @property
    def outside(self) -> dict[str, Value]:
        """Those that count as outside their healthy range, the most telling first."""
        return {
            name: self.values[name] for name in RANGES if name in self.values and self.values[name].since is not None
        }

    def observe(self, values: Mapping[str, float], step: int) -> None:
        """Look at a point.

        Args:
            values: Statistics by name without prefix.
            step: Their x.

        Example:
            >>> standing = Standing()
            >>> for step, k3 in enumerate([1e-6, 0.01, 0.01, 0.01]):
            ...     standing.observe({"mismatch_k3_kl": k3}, step)
            >>> standing.outside["mismatch_k3_kl"].since
            1
        """
        for name, healthy in RANGES.items():
            number = values.get(name, math.nan)
            if math.isfinite(number):
                self.values[name] = _following(self.values.get(name), number, healthy.grade(number), step)

    def state_dict(self) -> dict[str, Any]:
        """Each value as plain numbers and words, for a checkpoint."""
        return {name: value._asdict() for name, value in self.values.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state.

        Example:
            >>> standing, resumed = Standing(), Standing()
            >>> standing.observe({"mismatch_k3_kl": 0.01}, step=7)
            >>> resumed.load_state_dict(standing.state_dict())
            >>> resumed.outside["mismatch_k3_kl"].since
            7
        """
        self.values = {name: Value(**value) for name, value in state.items()}

    def counts(self) -> dict[str, float]:
        """How many values are outside, and how many of those call for action."""
        grades = [value.grade for value in self.outside.values()]
        return {"values_to_watch": float(len(grades)), "values_unhealthy": float(grades.count("unhealthy"))}


def _following(before: Value | None, number: float, grade: Grade, step: int) -> Value:
    outside = grade != "healthy"
    if before is None:
        return Value(number, grade, step if outside else None)
    if outside == (before.since is not None):
        return Value(number, grade, before.since)
    against, first = before.against + 1, before.first_against if before.against else step
    if against < (PATIENCE if outside else RECOVERY):
        return Value(number, grade, before.since, against, first)
    return Value(number, grade, first if outside else None)
