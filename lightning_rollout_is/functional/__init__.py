"""Tensors in, tensors out: needs torch alone, never waits for the GPU, compiles to one graph."""

from lightning_rollout_is.functional.aggregate import Units
from lightning_rollout_is.functional.alignment import Alignment, alignment
from lightning_rollout_is.functional.layout import Layout, PackedLayout, PaddedLayout, layout_of
from lightning_rollout_is.functional.log_ratio import LogRatio, compute_log_ratio
from lightning_rollout_is.functional.token_log_probs import token_log_probs
from lightning_rollout_is.functional.weights import ImportanceWeights, importance_weights

__all__ = [
    "Alignment",
    "ImportanceWeights",
    "Layout",
    "LogRatio",
    "PackedLayout",
    "PaddedLayout",
    "Units",
    "alignment",
    "compute_log_ratio",
    "importance_weights",
    "layout_of",
    "token_log_probs",
]
