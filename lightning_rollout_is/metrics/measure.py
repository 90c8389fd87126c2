"""The weights of a batch and what it adds to the statistics."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.functional.details import token_details
from lightning_rollout_is.functional.groups import GroupSums, sums_by_group, token_sums_by_group
from lightning_rollout_is.functional.log_ratio import compute_log_ratio
from lightning_rollout_is.functional.weights import ImportanceWeights, importance_weights
from lightning_rollout_is.metrics.packed import Packing
from lightning_rollout_is.types import CuSeqlens, GroupIds, TokenFloat, TokenMask


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
    groups: GroupIds | None = None,
) -> Measured:
    """Weights and statistics of one batch under some settings."""
    tensors = old_log_prob, rollout_log_prob, response_mask
    weights = importance_weights(*tensors, cu_seqlens=cu_seqlens, **config.weight_options)
    return Measured(weights.weight, packing.pack(completed(config, packing, weights, tensors, groups)))


def completed(
    config: RolloutISConfig,
    packing: Packing,
    weights: ImportanceWeights,
    tensors: tuple[TokenFloat, TokenFloat, TokenMask],
    groups: GroupIds | None = None,
) -> ImportanceWeights:
    """The weights, with all that some statistics need of their tokens."""
    if packing.has_details:
        weights = weights._replace(details=token_details(*tensors, weights.weight, weights.layout))
    if packing.groups is not None:
        weights = weights._replace(groups=_grouped(config, packing.groups, weights, tensors, groups))
    return weights


def _grouped(
    config: RolloutISConfig,
    count: int,
    weights: ImportanceWeights,
    tensors: tuple[TokenFloat, TokenFloat, TokenMask],
    groups: GroupIds | None,
) -> GroupSums:
    sums, units, layout = weights.sums, weights.units, weights.layout
    if groups is None:
        groups = sums.tokens.new_full(sums.tokens.shape, -1).long()
    groups = groups.to(sums.tokens.device)
    if groups.shape == sums.tokens.shape:
        return sums_by_group(groups, count, sums, units)
    if groups.shape != weights.weight.shape:
        raise ValueError(
            f"groups has shape {tuple(groups.shape)}; give one for each sequence, {tuple(sums.tokens.shape)}, or one "
            f"for each token, {tuple(weights.weight.shape)}"
        )
    log_ratio = compute_log_ratio(*tensors)
    level = config.weight_options["level"]
    return token_sums_by_group(groups, count, log_ratio, sums, units, layout, level, weights.thresholds)
