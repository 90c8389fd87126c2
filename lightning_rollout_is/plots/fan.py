"""Percentiles of the per-token log ratio over the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from lightning_rollout_is.plots.style import Curves, color_of, envelope, frame, heights_of, say, style_of, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEDIAN = "mismatch_log_ratio_p50"
FAN = (
    ("mismatch_log_ratio_p01", "mismatch_log_ratio_p99", "1% to 99%", 0.18),
    ("mismatch_log_ratio_p05", "mismatch_log_ratio_p95", "5% to 95%", 0.34),
)
"""Bottom, top, label and opacity of each band, the widest first."""
VIEW = (-0.01, 0.01)


class Fan(NamedTuple):
    """The median as a line, and how far the tokens spread around it as bands."""

    title: str = "Log ratio of the tokens, percentiles"

    def recorded(self, curves: Curves) -> bool:
        """Whether a run has the median or a band."""
        return MEDIAN in curves or any(low in curves and high in curves for low, high, *_ in FAN)

    def draw(self, axes: Axes, runs: Mapping[str, Curves]) -> None:
        """Draw the fan of each run in its colour; of several runs the widest band alone."""
        axes.set_title(self.title)
        if not any(self.recorded(curves) for curves in runs.values()):
            say(axes, "not recorded")
            return
        values: list[float] = []
        for number, curves in enumerate(runs.values()):
            values += _bands(axes, curves, number, alone=len(runs) == 1) + _median(axes, curves, number)
        low, high = heights_of(values, VIEW)
        alone = len(runs) == 1
        frame(axes, (low, high + 0.2 * (high - low) if alone else high), None, ideal=0.0)
        axes.set_ylabel("nats")
        if alone:
            axes.legend(fontsize="small", loc="upper center", ncols=3)


def _bands(axes: Axes, curves: Curves, number: int, alone: bool) -> list[float]:
    reached: list[float] = []
    for low, high, label, opacity in FAN if alone else FAN[:1]:
        if low in curves and high in curves:
            steps, bottom, top = envelope(curves[low], curves[high])
            axes.fill_between(steps, bottom, top, label=label, color=color_of(number), alpha=opacity, linewidth=0)
            reached += bottom + top
    return reached


def _median(axes: Axes, curves: Curves, number: int) -> list[float]:
    if MEDIAN not in curves:
        return []
    shown = thinned(curves[MEDIAN])
    axes.plot(shown.steps, shown.values, label="median", color=color_of(number), linestyle=style_of(number))
    return list(shown.values)
