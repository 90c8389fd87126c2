"""Importance weights of a batch: log ratio, level, bounds and veto in one go."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.choices import Level, Mode
from lightning_rollout_is.functional.aggregate import Units, require_level, sequence_units
from lightning_rollout_is.functional.blocks import Blocks
from lightning_rollout_is.functional.bound import bound, require_mode
from lightning_rollout_is.functional.details import Details
from lightning_rollout_is.functional.groups import GroupSums
from lightning_rollout_is.functional.layout import Layout, layout_of
from lightning_rollout_is.functional.log_ratio import compute_log_ratio, require_like_shapes
from lightning_rollout_is.functional.sums import TokenSums
from lightning_rollout_is.functional.thresholds import Thresholds, require_thresholds
from lightning_rollout_is.functional.tokens import Tokens
from lightning_rollout_is.types import CuSeqlens, SequenceFloat, TokenFloat, TokenMask


class ImportanceWeights(NamedTuple):
    """What multiplies the loss, and all that the statistics are made of. Nothing in it has a gradient."""

    weight: TokenFloat
    """Applied weights in [0, upper], shape of the inputs; 0 outside the mask, on missing tokens and where vetoed."""
    sums: TokenSums
    units: Units
    vetoed: SequenceFloat
    """1 for a sequence with a catastrophic token, else 0."""
    layout: Layout
    thresholds: Thresholds
    details: Details | None = None
    """What a second pass found, where it was made."""
    groups: GroupSums | None = None
    """Sums by group, where the batch names groups."""

    @property
    def known_details(self) -> Details:
        """The details, which the statistics of a metric that has them can rely on."""
        if self.details is None:
            raise ValueError("these weights have no details; add them with token_details")
        return self.details

    @property
    def known_groups(self) -> GroupSums:
        """The sums by group, which the statistics of a metric that has them can rely on."""
        if self.groups is None:
            raise ValueError("these weights have no sums by group; add them with sums_by_group")
        return self.groups


@torch.no_grad()
def importance_weights(
    old_log_prob: TokenFloat,
    rollout_log_prob: TokenFloat,
    response_mask: TokenMask,
    *,
    level: Level = "token",
    mode: Mode = "truncate",
    upper: float,
    lower: float | None = None,
    veto: float | None = 1e-4,
    cu_seqlens: CuSeqlens | None = None,
) -> ImportanceWeights:
    r"""Weights that correct a loss on rollout data towards the training policy.

    The raw ratio of each unit is clamped to [exp(-20), exp(20)], bounded by ``mode``, and set to 0 in every sequence
    that the veto rejects. Source: "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (Yao et al.
    2025); "When Speed Kills Stability" (Liu, Li et al. 2025).

    Args:
        old_log_prob: Log-prob of each sampled token under the training policy at rollout time, nats; (batch, seq), or
            (tokens,) with ``cu_seqlens``.
        rollout_log_prob: Log-prob of the same token under the rollout policy.
        response_mask: 1 on tokens that the policy generated, 0 elsewhere.
        level: ``"token"``, ``"sequence"`` (product over the sequence) or ``"geometric"`` (geometric mean).
        mode: ``"truncate"`` caps at ``upper``; ``"mask"`` sets weights outside [lower, upper] to 0.
        upper: Upper threshold of a weight.
        lower: Lower threshold; ``None`` means ``1 / upper``.
        veto: Token ratio under which the whole sequence gets weight 0; ``None`` for no veto.
        cu_seqlens: Sequence boundaries of packed tokens, ``[0, n1, n1 + n2, ...]``.

    Returns:
        :class:`ImportanceWeights`. All weights of a sequence are NaN where its mask holds other values than 0 and 1,
        and everywhere if ``cu_seqlens`` does not fit the tokens; the counts are NaN in both cases. No plausible number
        comes from bad input, and nothing waits for the GPU.

    Raises:
        ValueError: Shapes, dtypes, level, mode or thresholds do not fit.

    Example:
        >>> old, rollout = torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[-1.5, -1.0, -3.0]])
        >>> importance_weights(old, rollout, torch.tensor([[1, 1, 1]]), upper=2.0).weight
        tensor([[1.6487, 1.0000, 2.0000]])
    """
    require_level(level)
    require_mode(mode)
    thresholds = require_thresholds(upper, lower, veto)
    reader, layout = _reader(old_log_prob, rollout_log_prob, response_mask, cu_seqlens, thresholds)
    if level == "token":
        weight, sums, units = reader.weighed(mode, thresholds)
        of_sequence = sums.present
    else:
        weight, sums = reader.indicated(thresholds)
        log_weight, units = sequence_units(sums, level, thresholds)
        of_sequence = bound(log_weight, mode, thresholds) + sums.flaw
    vetoed = sums.catastrophic.sign()
    weight.mul_(layout.expand((of_sequence * (1.0 - vetoed)).to(weight.dtype)))
    return ImportanceWeights(weight, sums, units, vetoed, layout, thresholds)


def _reader(
    old_log_prob: Tensor,
    rollout_log_prob: Tensor,
    response_mask: Tensor,
    cu_seqlens: Tensor | None,
    thresholds: Thresholds,
) -> tuple[Tokens | Blocks, Layout]:
    tensors = old_log_prob, rollout_log_prob, response_mask
    require_like_shapes(*tensors)
    layout = layout_of(old_log_prob, cu_seqlens)
    if Blocks.fit(tensors, layout, thresholds):
        return Blocks(*tensors), layout
    return Tokens(compute_log_ratio(*tensors), layout), layout
