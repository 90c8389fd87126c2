"""Everywhere that a point goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightning.pytorch import Trainer

from lightning_rollout_is.callbacks.bar import BarValues
from lightning_rollout_is.callbacks.boards import boards_of
from lightning_rollout_is.callbacks.curves import Curves
from lightning_rollout_is.callbacks.histograms import Histograms
from lightning_rollout_is.callbacks.observers import WrittenPoint, tell
from lightning_rollout_is.callbacks.page import Page
from lightning_rollout_is.callbacks.panels import Panels
from lightning_rollout_is.callbacks.point import Point, Reading
from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics


class Outlets:
    """Curves of every logger, callbacks that want to know, the progress bar, and the pages of TensorBoard.

    Args:
        flush_seconds: As for :class:`Curves`.
        histogram_every_n_steps: As for :class:`Histograms`.
        prog_bar: As for :class:`BarValues`.
        tensorboard_page: Whether TensorBoard gets more than curves and histograms.
    """

    def __init__(
        self, flush_seconds: float, histogram_every_n_steps: int, prog_bar: Iterable[str], tensorboard_page: bool
    ) -> None:
        self._bar = BarValues(prog_bar)
        self._panels = Panels() if tensorboard_page else None
        self._curves = Curves(flush_seconds)
        self._histograms = Histograms(histogram_every_n_steps)

    @property
    def page(self) -> Page | None:
        """What lies on the page of charts, once there is a point."""
        return None if self._panels is None else self._panels.page

    def check(self, metrics: RolloutISMetrics | None, prefix: str | None) -> None:
        """Find out what the names for the progress bar mean.

        Args:
            metrics: Whose statistics; ``None`` where nothing is measured.
            prefix: What their keys begin with; ``None`` for the metric's own.

        Raises:
            ValueError: A name means none of them.
        """
        if metrics is not None:
            names = [key.removeprefix(metrics.prefix) for key in metrics.named(metrics.packed)]
            self._bar.begin(names, metrics.prefix if prefix is None else prefix)

    def begin(self, afresh: bool) -> None:
        """Begin a run, or go on with one that has a past."""
        self._histograms.begin()
        if self._panels is not None:
            self._panels.begin(afresh)

    def state_dict(self) -> dict[str, Any]:
        """What a run that goes on has to know."""
        return {} if self._panels is None else {"standing": self._panels.standing.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; one of a run without pages is none."""
        if self._panels is not None and "standing" in state:
            self._panels.standing.load_state_dict(state["standing"])

    def write(self, trainer: Trainer, point: Point, reading: Reading) -> bool:
        """Write a point to loggers, metrics and the progress bar.

        Returns:
            Whether one of its values was defined; if not, it goes nowhere.
        """
        beside = None if self._panels is None else self._panels.beside(reading.numbers, point.prefix, point.step)
        if not self._curves.add(trainer, reading.scalars, reading.numbers, point.step, beside):
            return False
        self._bar.show(trainer, reading.numbers)
        self._histograms.add(trainer, reading.histograms, point.step)
        return True

    def tell(self, trainer: Trainer, point: Point, reading: Reading) -> None:
        """Tell whoever wants to know of a point that was written, and then what they make of it."""
        written = WrittenPoint(point.step, point.prefix, reading.numbers)
        try:
            tell(trainer, written)
        finally:
            # Who ends training by raising has something to say.
            if self._panels is not None:
                self._panels.add(trainer, written, point.metrics.config)

    def end(self, trainer: Trainer) -> None:
        """Write what only the last point of a run decides."""
        self._histograms.end(trainer)
        if self._panels is not None:
            self._panels.end(trainer)
        for board in boards_of(trainer):
            board.logger.save()
