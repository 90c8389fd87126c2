"""Who else wants to know of a point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from lightning.pytorch import Trainer

from lightning_rollout_is.health import Finding


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


@runtime_checkable
class PointJudge(PointObserver, Protocol):
    """One that also says what is wrong."""

    findings: list[Finding]
    """All that holds at the last point."""


def judges_of(trainer: Trainer) -> list[PointJudge]:
    """The callbacks of a Trainer that say what is wrong."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    return [callback for callback in callbacks if isinstance(callback, PointJudge)]


def tell(trainer: Trainer, point: WrittenPoint) -> None:
    """Tell the callbacks of a Trainer that want to know."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, PointObserver):
            callback.on_rollout_is_point(trainer, point)
