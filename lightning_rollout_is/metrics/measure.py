"""The weights of a batch and what it adds to the statistics."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.functional.weights import importance_weights
from lightning_rollout_is.metrics.packed import Packing
from lightning_rollout_is.types import CuSeqlens, TokenFloat, TokenMask


class Measured(NamedTuple):
    """What one batch comes to."""

    weight: TokenFloat
    """Applied weights in [0, upper], shape of the inputs, without gradient."""
    packed: Tensor
    """Its sums and maxima, for :meth:`Packing.add`."""


def measure(
    config: RolloutISConfig,
    packing: Packing,
    old_log_prob: TokenFloat,
    rollout_log_prob: TokenFloat,
    response_mask: TokenMask,
    cu_seqlens: CuSeqlens | None = None,
) -> Measured:
    """Weights and statistics of one batch under some settings."""
    weights = importance_weights(
        old_log_prob, rollout_log_prob, response_mask, cu_seqlens=cu_seqlens, **config.weight_options
    )
    return Measured(weights.weight, packing.pack(weights))
