"""Rollout importance sampling for PyTorch Lightning: measure the policy mismatch exactly, and correct it.

Names are imported when they are first used, so that the arithmetic needs neither Lightning nor Hydra, and Hydra's
plugin discovery does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_rollout_is.callbacks.health import RolloutISHealth
    from lightning_rollout_is.callbacks.rollout_is import RolloutISCallback
    from lightning_rollout_is.config import RolloutISConfig
    from lightning_rollout_is.functional import (
        ImportanceWeights,
        importance_weights,
        token_log_probs,
    )
    from lightning_rollout_is.losses import (
        aggregate_loss,
        grpo_advantages,
        ppo_clip_loss,
        reinforce_loss,
    )
    from lightning_rollout_is.metrics import (
        CatastrophicTokenFraction,
        EffectiveSampleSize,
        ImportanceWeightMax,
        ImportanceWeightMean,
        ImportanceWeightStd,
        MaskedFraction,
        MissingFraction,
        PerplexityRatio,
        RolloutISMetrics,
        RolloutKL,
        VetoFraction,
    )
    from lightning_rollout_is.mixin import RolloutISMixin
    from lightning_rollout_is.plots import plot_rollout_is
    from lightning_rollout_is.reference_api import compute_rollout_importance_weights

_ROOMS = {
    "callbacks.health": ("RolloutISHealth",),
    "callbacks.rollout_is": ("RolloutISCallback",),
    "config": ("RolloutISConfig",),
    "functional": ("ImportanceWeights", "importance_weights", "token_log_probs"),
    "losses": ("aggregate_loss", "grpo_advantages", "ppo_clip_loss", "reinforce_loss"),
    "metrics": (
        "CatastrophicTokenFraction",
        "EffectiveSampleSize",
        "ImportanceWeightMax",
        "ImportanceWeightMean",
        "ImportanceWeightStd",
        "MaskedFraction",
        "MissingFraction",
        "PerplexityRatio",
        "RolloutISMetrics",
        "RolloutKL",
        "VetoFraction",
    ),
    "mixin": ("RolloutISMixin",),
    "plots": ("plot_rollout_is",),
    "reference_api": ("compute_rollout_importance_weights",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "CatastrophicTokenFraction",
    "EffectiveSampleSize",
    "ImportanceWeightMax",
    "ImportanceWeightMean",
    "ImportanceWeightStd",
    "ImportanceWeights",
    "MaskedFraction",
    "MissingFraction",
    "PerplexityRatio",
    "RolloutISCallback",
    "RolloutISConfig",
    "RolloutISHealth",
    "RolloutISMetrics",
    "RolloutISMixin",
    "RolloutKL",
    "VetoFraction",
    "aggregate_loss",
    "compute_rollout_importance_weights",
    "grpo_advantages",
    "importance_weights",
    "plot_rollout_is",
    "ppo_clip_loss",
    "reinforce_loss",
    "token_log_probs",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
