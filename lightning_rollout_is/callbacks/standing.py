"""How each value of a run stands: healthy or not, and since which step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from lightning_rollout_is.healthy_ranges import RANGES, Grade

PATIENCE = 5
"""Points in a row after which a value is said to be in its healthy range again, or no longer."""


class Value(NamedTuple):
    """One statistic that has a healthy range."""

    number: float
    grade: Grade
    since: int
    """Step since which it has been on this side of the healthy range."""
    points: int
    """How many points that are."""


class Standing:
    """Follows the values of a run that have a healthy range, by name without prefix."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.outside: frozenset[str] = frozenset()
        """Those that are outside for good, as far as one can tell: one point does not make or end it."""

    def observe(self, values: Mapping[str, float], step: int) -> None:
        """Look at a point.

        Args:
            values: Statistics by name without prefix.
            step: Their x.

        Example:
            >>> standing = Standing()
            >>> standing.observe({"mismatch_k3_kl": 0.01}, 0)
            >>> standing.values["mismatch_k3_kl"], sorted(standing.outside)
            (Value(number=0.01, grade='watch', since=0, points=1), ['mismatch_k3_kl'])
        """
        first = not self.values
        for name in RANGES:
            if math.isfinite(values.get(name, math.nan)):
                self.values[name] = self._following(name, values[name], step)
        outside = {name for name, value in self.values.items() if value.grade != "healthy"}
        # A run that begins outside is not waited for.
        settled = {name for name, value in self.values.items() if first or value.points >= PATIENCE}
        self.outside = frozenset((self.outside - settled) | (outside & settled))

    def _following(self, name: str, number: float, step: int) -> Value:
        grade = RANGES[name].grade(number)
        before = self.values.get(name)
        if before is None or (before.grade == "healthy") != (grade == "healthy"):
            return Value(number, grade, step, 1)
        return Value(number, grade, before.since, before.points + 1)
