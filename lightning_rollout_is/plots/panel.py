"""Curves over the steps, on the bands of the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from lightning_rollout_is.event_files import Curve
from lightning_rollout_is.healthy_ranges import RANGES, HealthyRange
from lightning_rollout_is.plots.style import (
    Curves,
    color_of,
    envelope,
    extent,
    frame,
    heights_of,
    say,
    style_of,
    thinned,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FLOOR = 1e-16
"""Where a value of 0 lies on a logarithmic axis."""
STANDARD_ERRORS = {"mismatch_kl": "mismatch_kl_stderr", "rollout_is_mean": "rollout_is_mean_stderr"}
"""Metric, and the curve of its standard error."""
CONFIDENCE = 1.96
"""Standard errors on either side: 95% of a normal distribution."""


class Panel(NamedTuple):
    """One plot of the figure."""

    title: str
    curves: Mapping[str, str]
    """Metric name without prefix, and its label. The first has the bands."""
    view: tuple[float, float]
    """What the y axis shows at least: noise far inside the healthy range shall not fill the plot."""
    ideal: float | None = None
    """Value where both policies agree."""
    logarithmic: bool = False
    fallback: str = ""
    """What to write where no curve exists."""
    linear_within: float = 0.0
    """Up to which value, either way, a logarithmic axis is linear: for values that noise can make negative."""

    @property
    def healthy_range(self) -> HealthyRange | None:
        """Of the first curve, which may be that of a group, ``<metric>/<group>``."""
        return RANGES.get(next(iter(self.curves)).partition("/")[0])

    def recorded(self, curves: Curves) -> bool:
        """Whether a run has one of the curves."""
        return any(name in curves and len(curves[name].steps) > 0 for name in self.curves)

    def draw(self, axes: Axes, runs: Mapping[str, Curves]) -> None:
        """Draw all curves of one run, or the first curve of several; with a band of 95% where that is known."""
        axes.set_title(self.title)
        if self.logarithmic and self.linear_within:
            axes.set_yscale("symlog", linthresh=self.linear_within)
        elif self.logarithmic:
            axes.set_yscale("log")
        drawn = list(self._drawn(runs))
        if not drawn:
            say(axes, self.fallback or "not recorded")
            return
        values: list[float] = []
        for number, name, curve, errors in drawn:
            values += self._line(axes, self.curves[name] + ("" if errors is None else ", 95%"), curve, number)
            values += [] if errors is None else _error_band(axes, curve, errors, color_of(number))
        frame(axes, self._heights(values), self.healthy_range, self.ideal)
        if len(runs) == 1:
            axes.legend(fontsize="small")

    def _drawn(self, runs: Mapping[str, Curves]) -> Iterator[tuple[int, str, Curve, Curve | None]]:
        """Number for the colour, name, curve and its standard errors; either runs have a colour each, or curves."""
        names = tuple(self.curves) if len(runs) == 1 else tuple(self.curves)[:1]
        for run, curves in enumerate(runs.values()):
            for position, name in enumerate(names):
                if name in curves and len(curves[name].steps) > 0:
                    yield run + position, name, curves[name], curves.get(STANDARD_ERRORS.get(name, ""))

    def _line(self, axes: Axes, label: str, curve: Curve, number: int) -> list[float]:
        """Draw a curve and say how far it reaches."""
        shown = thinned(curve)
        positive = self.logarithmic and not self.linear_within
        heights = [max(value, FLOOR) for value in shown.values] if positive else list(shown.values)
        color, style, marker = color_of(number), style_of(number), "o" if len(shown.steps) == 1 else ""
        axes.plot(shown.steps, heights, label=label, color=color, linestyle=style, marker=marker)
        return heights

    def _heights(self, values: list[float]) -> tuple[float, float]:
        if not self.logarithmic:
            return heights_of(values, self.view)
        low, high = extent(values, self.view)
        return (low * 2 if self.linear_within else max(low, FLOOR) / 2), high * 2


def _error_band(axes: Axes, curve: Curve, errors: Curve, color: str) -> list[float]:
    """Draw the band around a curve and say how far it reaches."""
    error = dict(zip(errors.steps, errors.values, strict=True))
    points = [(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if step in error]
    steps = [step for step, _ in points]
    bottom = Curve(steps, [value - CONFIDENCE * error[step] for step, value in points])
    top = Curve(steps, [value + CONFIDENCE * error[step] for step, value in points])
    shown, low, high = envelope(bottom, top)
    axes.fill_between(shown, low, high, color=color, alpha=0.25, linewidth=0, zorder=1.5)
    return low + high
