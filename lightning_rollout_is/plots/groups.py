"""One statistic by group of the batch: environment, data source, turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from lightning_rollout_is.event_files import Curve, finite_points
from lightning_rollout_is.healthy_ranges import RANGES
from lightning_rollout_is.plots.panel import Panel
from lightning_rollout_is.plots.style import Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 12
"""Groups in one plot, those that end farthest from agreement."""


class Groups(NamedTuple):
    """The curves ``<metric>/<group>`` of one metric, on its bands."""

    whole: Panel
    """How the metric itself is drawn."""

    @property
    def title(self) -> str:
        """The metric's, by group."""
        return f"{self.whole.title}, by group"

    @property
    def metric(self) -> str:
        """Whose groups they are."""
        return next(iter(self.whole.curves))

    def recorded(self, curves: Curves) -> bool:
        """Whether the batches of a run named groups."""
        return bool(self._worst_first(curves))

    def draw(self, axes: Axes, runs: Mapping[str, Curves]) -> None:
        """Draw the groups of one run, a colour each, or the worst group of each of several runs."""
        names = {label: self._worst_first(curves) for label, curves in runs.items()}
        if len(runs) > 1:
            worst = {label: {self.metric: runs[label][of_run[0]]} for label, of_run in names.items() if of_run}
            panel = self.whole._replace(title=f"{self.whole.title}, worst group")
            panel.draw(axes, {label: worst.get(label, {}) for label in runs})
            return
        ((curves, of_run),) = zip(runs.values(), names.values(), strict=True)
        title = self.title if len(of_run) <= SHOWN else f"{self.title} ({SHOWN} of {len(of_run)})"
        # By name, so that a group has the same colour in every plot.
        shown = {name: name.removeprefix(self._start) for name in sorted(of_run[:SHOWN])}
        self.whole._replace(title=title, curves=shown or self.whole.curves).draw(axes, {"": curves if shown else {}})

    @property
    def _start(self) -> str:
        return f"{self.metric}/"

    def _worst_first(self, curves: Curves) -> list[str]:
        names = [name for name, curve in curves.items() if name.startswith(self._start) and len(curve.steps) > 0]
        return sorted(names, key=lambda name: -_distance(self.metric, curves[name]))


def _distance(metric: str, curve: Curve) -> float:
    """How far a group ends from agreement."""
    values = finite_points(curve).values
    return RANGES[metric].distance(values[-1]) if values else 0.0
