"""What all plots share: colours, how many points are drawn, and the frame around the curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from lightning_rollout_is.event_files import Curve
from lightning_rollout_is.healthy_ranges import GRADE_COLORS, HealthyRange

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS_DRAWN = 1000
"""More points than that are thinned out, since no screen shows them."""
COLORS = ("#2f6fde", "#c0268f", "#0f8f8f", "#8a5a00", "#7a52d1", "#6b7280")
"""None is a colour of the bands, and each can be seen on white and on black."""
STYLES = ("-", "--", ":")
Curves = Mapping[str, Curve]
"""Of one run, by metric name without prefix."""


class Plot(Protocol):
    """One plot of the figure and of the report."""

    @property
    def title(self) -> str:
        """What it shows."""

    def recorded(self, curves: Curves) -> bool:
        """Whether a run has anything to draw here."""

    def draw(self, axes: Axes, runs: Mapping[str, Curves]) -> None:
        """Draw one run or several.

        Args:
            axes: Where.
            runs: Label of a run to its curves. Each of several runs has a colour of its own.
        """


def color_of(number: int) -> str:
    """The colour of a run, or of a curve of a single run."""
    return COLORS[number % len(COLORS)]


def style_of(number: int) -> str:
    """The style of a line: another one when the colours begin again."""
    return STYLES[number // len(COLORS) % len(STYLES)]


def say(axes: Axes, words: str) -> None:
    """Write a remark where there is nothing to draw."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, ha="center", va="center", color="gray")


def frame(axes: Axes, heights: tuple[float, float], healthy: HealthyRange | None, ideal: float | None = None) -> None:
    """Scale the y axis, and put the bands and the ideal value behind the curves."""
    low, high = heights
    axes.set_ylim(low, high)
    for bottom, top, grade in healthy.bands(low, high) if healthy is not None else ():
        axes.axhspan(bottom, top, color=GRADE_COLORS[grade], alpha=0.17, linewidth=0, zorder=0)
    if ideal is not None:
        axes.axhline(ideal, linestyle="--", linewidth=1, color="gray", zorder=1)
    axes.set_xlabel("optimizer step")


def extent(values: Iterable[float], view: tuple[float, float]) -> tuple[float, float]:
    """The smallest interval that holds a view and every finite value.

    Example:
        >>> extent([0.5, float("inf"), 3.0], (0.0, 1.0))
        (0.0, 3.0)
    """
    finite = [value for value in values if math.isfinite(value)]
    return min([view[0], *finite]), max([view[1], *finite])


def heights_of(values: Iterable[float], view: tuple[float, float]) -> tuple[float, float]:
    """The same, with a margin where the view had to be widened.

    Example:
        >>> heights_of([0.5], (0.0, 1.0)), heights_of([2.0], (0.0, 1.0))
        ((0.0, 1.0), (0.0, 2.06))
    """
    low, high = extent(values, view)
    margin = 0.03 * (high - low)
    return (low - margin if low < view[0] else low), (high + margin if high > view[1] else high)


def thinned(curve: Curve, limit: int = POINTS_DRAWN) -> Curve:
    """The smallest and the largest value of each stretch, so that no peak is lost.

    Args:
        curve: Any number of points.
        limit: How many may remain.

    Example:
        >>> thinned(Curve(range(8), [0.0, 1.0, 0.0, 9.0, 0.0, -5.0, 1.0, 1.0]), limit=4)
        Curve(steps=[0, 3, 5, 6], values=[0.0, 9.0, -5.0, 1.0])
    """
    length = len(curve.steps)
    if length <= limit:
        return curve
    kept = []
    for places in _stretches(length, limit // 2):
        finite = [place for place in places if math.isfinite(curve.values[place])] or places
        kept += sorted({min(finite, key=curve.values.__getitem__), max(finite, key=curve.values.__getitem__)})
    return Curve([curve.steps[place] for place in kept], [curve.values[place] for place in kept])


def envelope(lower: Curve, upper: Curve, limit: int = POINTS_DRAWN) -> tuple[list[int], list[float], list[float]]:
    """Steps, bottom and top of the band between two curves, as wide as it is anywhere in a stretch that is left out.

    Args:
        lower: The bottom.
        upper: The top; only steps at which both are finite are in the band.
        limit: How many steps may remain.

    Example:
        >>> envelope(Curve([0, 1, 2], [0.0, -1.0, 0.0]), Curve([0, 1, 3], [1.0, 2.0, 9.0]))
        ([0, 1], [0.0, -1.0], [1.0, 2.0])
    """
    tops = dict(zip(upper.steps, upper.values, strict=True))
    points = [
        (step, bottom, tops[step])
        for step, bottom in zip(lower.steps, lower.values, strict=True)
        if step in tops and math.isfinite(bottom) and math.isfinite(tops[step])
    ]
    if len(points) > limit:
        kept = [[points[place] for place in places] for places in _stretches(len(points), limit)]
        points = [
            (stretch[0][0], min(bottom for _, bottom, _ in stretch), max(top for *_, top in stretch))
            for stretch in kept
        ]
    return [step for step, *_ in points], [bottom for _, bottom, _ in points], [top for *_, top in points]


def _stretches(length: int, number: int) -> Iterable[range]:
    return (range(part * length // number, (part + 1) * length // number) for part in range(number))
