"""torchmetrics classes: state and sync, no arithmetic."""

from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics
from lightning_rollout_is.metrics.single import (
    CatastrophicTokenFraction,
    EffectiveSampleSize,
    ImportanceWeightMax,
    ImportanceWeightMean,
    ImportanceWeightStd,
    MaskedFraction,
    MissingFraction,
    PerplexityRatio,
    RolloutKL,
    VetoFraction,
)

__all__ = [
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
]
