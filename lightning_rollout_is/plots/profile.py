"""How the mismatch changes along the response."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lightning_rollout_is.plots.style import Curves, color_of, frame, heights_of, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DECILES = tuple(f"mismatch_abs_log_ratio_decile_{decile:02d}" for decile in range(1, 11))
CENTRES = tuple(range(5, 100, 10))
"""Of the deciles, in percent of the response."""
WINDOW = 5
"""Points that are averaged at either end: one step alone is noise."""
VIEW = (0.0, 0.03)


class Profile(NamedTuple):
    """Mean size of the log ratio by tenths of the response, at the beginning of the run and at its end."""

    title: str = "Mismatch along the response"

    def recorded(self, curves: Curves) -> bool:
        """Whether a run has the mismatch of any tenth."""
        return any(name in curves for name in DECILES)

    def draw(self, axes: Axes, runs: Mapping[str, Curves]) -> None:
        """Draw two profiles a run, dotted for the beginning."""
        axes.set_title(self.title)
        drawn = [(number, curves) for number, curves in enumerate(runs.values()) if self.recorded(curves)]
        if not drawn:
            say(axes, "not recorded")
            return
        values: list[float] = []
        for number, curves in drawn:
            first, last = (_profile(curves, end) for end in (slice(WINDOW), slice(-WINDOW, None)))
            axes.plot(CENTRES, first, ":", label="first steps", color=color_of(number))
            axes.plot(CENTRES, last, "-o", markersize=3, label="last steps", color=color_of(number))
            values += [*first, *last]
        frame(axes, heights_of(values, VIEW), None)
        axes.set_xlabel("% of the response")
        axes.set_ylabel("mean |log ratio|, nats")
        # The legend of the first run stands for all.
        axes.legend(handles=axes.lines[:2], fontsize="small")


def _profile(curves: Curves, end: slice) -> list[float]:
    return [_mean(curves[name].values[end]) if name in curves else math.nan for name in DECILES]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan
