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
    # Where nothing is measured there is but one setting, and that differs.
    differing = [name for name in settings if name in first and settings[name] != first[name]]
    if not trainer.strategy.reduce_boolean_decision(not differing, all=True):
        said = ", ".join(f"{name} = {settings[name]!r} (rank 0: {first[name]!r})" for name in differing)
        here = f"rank {trainer.global_rank} has {said}" if said else "this rank is at one with rank 0, and another not"
        raise MisconfigurationException(
            f"the ranks have different settings of rollout importance sampling: {here}; configure the module and the "
            "callback alike on all ranks"
        )
