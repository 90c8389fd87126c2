"""The module whose statistics a callback reads, and what is refused before it does."""

from __future__ import annotations

from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule

from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics

NO_STEP_SEEN = (
    "rollouts were recorded, and nothing was logged: under manual optimisation Lightning counts the steps of "
    "self.optimizers() inside training_step alone; step there, with optimizers from configure_optimizers"
)


def require_at_least(least: int, **given: int) -> None:
    """Refuse a setting that is too small."""
    for name, value in given.items():
        if value < least:
            raise ValueError(f"{name} = {value} is not allowed; allowed: {least} or more")


def require_metrics(pl_module: LightningModule) -> None:
    """Refuse a module without rollout importance sampling."""
    if not hasattr(pl_module, "rollout_is_metrics"):
        raise MisconfigurationException(
            f"RolloutISCallback found no rollout importance sampling in {type(pl_module).__name__}; derive it from "
            "RolloutISMixin and call self.configure_rollout_is(cfg.algorithm) in its __init__ or configure_model"
        )


def metrics_of(pl_module: LightningModule) -> RolloutISMetrics | None:
    """The statistics of a module; ``None`` while its threshold is null."""
    metrics: RolloutISMetrics | None = getattr(pl_module, "rollout_is_metrics", None)
    return metrics


def set_deferral(pl_module: Any, defers: bool) -> None:
    """From here on this callback tells all ranks of what one refuses, or no longer."""
    pl_module.rollout_is_defers = defers
