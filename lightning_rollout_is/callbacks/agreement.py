"""All ranks have to measure the same: their sums are added entry by entry, by a collective that all of them enter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer

from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics


def settings_of(metrics: RolloutISMetrics | None, **of_callback: Any) -> dict[str, Any]:
    """What must not differ between ranks, by the name under which a user sets it."""
    if metrics is None:
        return {"rollout_is_threshold": None, **of_callback}
    measured = {"details": metrics.packing.has_details, "groups": metrics.group_names.names}
    return {**vars(metrics.config), **measured, **of_callback}


def require_agreement(trainer: Trainer, settings: Mapping[str, Any]) -> None:
    """Stop every rank if one has other settings than the first; call it on all of them.

    Args:
        trainer: Its strategy knows the ranks.
        settings: Of this rank.

    Raises:
        MisconfigurationException: On every rank; those that differ from the first say in what.
    """
    first: Mapping[str, Any] = trainer.strategy.broadcast(settings)
    names = [name for name in {**first, **settings} if settings.get(name) != first.get(name)]
    if not trainer.strategy.reduce_boolean_decision(not names, all=True):
        said = ", ".join(f"{name} = {settings.get(name)!r} (rank 0: {first.get(name)!r})" for name in names)
        here = f"rank {trainer.global_rank} has {said}" if names else "this rank is at one with rank 0, and another not"
        raise MisconfigurationException(
            f"the ranks have different settings of rollout importance sampling: {here}; configure the module and the "
            "callback alike on all ranks"
        )
