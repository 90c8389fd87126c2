"""Who else wants to know of a point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from lightning.pytorch import Trainer


class WrittenPoint(NamedTuple):
    """A point that is in ``callback_metrics`` and with every logger; the same on every rank."""

    step: int
    prefix: str
    """What the keys begin with."""
    numbers: Mapping[str, float]
    """Values by key, those that are not defined too."""


@runtime_checkable
class PointObserver(Protocol):
    """A callback with this method is told of each point that ``RolloutISCallback`` writes, wherever either stands."""

    def on_rollout_is_point(self, trainer: Trainer, point: WrittenPoint) -> None:
        """Judge, plot, count; called on every rank, at the same hook."""


def tell(trainer: Trainer, point: WrittenPoint) -> None:
    """Tell the callbacks of a Trainer that want to know."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, PointObserver):
            callback.on_rollout_is_point(trainer, point)
