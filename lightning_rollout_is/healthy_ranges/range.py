"""One statistic, as a reader sees it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

Grade = Literal["healthy", "watch", "unhealthy"]
ANYTHING = (-math.inf, math.inf)


class HealthyRange(NamedTuple):
    """One statistic, as a reader sees it."""

    label: str
    ideal: float
    """Its value where both policies agree."""
    healthy: tuple[float, float] = ANYTHING
    warning: tuple[float, float] = ANYTHING
    """Outside this interval, which contains ``healthy``, something has to be done."""
    meaning: str = ""
    """What a value outside ``healthy`` says."""
    remedy: str = ""
    """What to set or to look at then."""
    relative: bool = False
    """Whether a half is as far from the ideal as a double."""

    def grade(self, value: float) -> Grade:
        """How a value reads; one that is not a number reads ``"watch"``.

        Example:
            >>> from lightning_rollout_is.healthy_ranges import RANGES
            >>> [RANGES["rollout_is_eff_sample_size"].grade(value) for value in (0.9, 0.4, 0.2)]
            ['healthy', 'watch', 'unhealthy']
        """
        if not math.isfinite(value):
            return "watch"
        if not self.warning[0] <= value <= self.warning[1]:
            return "unhealthy"
        return "healthy" if self.healthy[0] <= value <= self.healthy[1] else "watch"

    def distance(self, value: float) -> float:
        """How far a value is from the ideal, 0 or more: the largest of a run is its worst.

        Example:
            >>> from lightning_rollout_is.healthy_ranges import RANGES
            >>> ratio = RANGES["mismatch_ppl_ratio"]
            >>> ratio.distance(0.5) == ratio.distance(2.0) > ratio.distance(1.9)
            True
        """
        if not self.relative:
            return abs(value - self.ideal)
        return abs(math.log(value / self.ideal)) if value > 0 else math.inf

    def limits(self) -> str:
        """The healthy interval in words.

        Example:
            >>> from lightning_rollout_is.healthy_ranges import RANGES
            >>> [RANGES[name].limits() for name in ("mismatch_kl", "mismatch_k3_kl", "rollout_is_missing_fraction")]
            ['-0.01 to 0.01', '0.0005 or less', '0']
        """
        low, high = self.healthy
        if math.isinf(low):
            return "" if math.isinf(high) else f"{high:g} or less" if high else "0"
        return f"{low:g} or more" if math.isinf(high) else f"{low:g} to {high:g}"

    def bands(self, lowest: float, highest: float) -> Iterator[tuple[float, float, Grade]]:
        """Bottom, top and grade of each stretch that can be seen between two heights; none where every value is well.

        Example:
            >>> from lightning_rollout_is.healthy_ranges import RANGES
            >>> list(RANGES["rollout_is_eff_sample_size"].bands(0.25, 1.0))
            [(0.25, 0.3, 'unhealthy'), (0.3, 0.5, 'watch'), (0.5, 1.0, 'healthy')]
        """
        if not any(map(math.isfinite, self.healthy + self.warning)):
            return
        (low, high), (least, most) = self.healthy, self.warning
        edges = [min(max(edge, lowest), highest) for edge in (lowest, least, low, high, most, highest)]
        grades: tuple[Grade, ...] = ("unhealthy", "watch", "healthy", "watch", "unhealthy")
        for bottom, top, grade in zip(edges, edges[1:], grades, strict=False):
            if bottom < top:
                yield bottom, top, grade
