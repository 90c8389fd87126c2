"""Importance weights of a batch: log ratio, level, bounds and veto in one go."""

from __future__ import annotations

from typing import NamedTuple

import torch

from lightning_rollout_is.choices import Level, Mode
from lightning_rollout_is.functional.aggregate import Units, aggregate
from lightning_rollout_is.functional.bound import Bounded, bound
from lightning_rollout_is.functional.layout import Layout, accumulation_dtype, layout_of
from lightning_rollout_is.functional.log_ratio import LogRatio, compute_log_ratio
from lightning_rollout_is.functional.thresholds import require_thresholds
from lightning_rollout_is.functional.veto import Vetoed, veto_sequences
from lightning_rollout_is.types import CuSeqlens, Scalar, TokenBool, TokenFloat, TokenMask


class Counts(NamedTuple):
    """What the statistics divide by; NaN if the mask or ``cu_seqlens`` is malformed, so that every quotient is."""

    tokens: Scalar
    """Valid tokens."""
    sequences: Scalar
    """Sequences with a valid token."""
    share: Scalar
    """What the fractions above and below the thresholds are of: valid tokens, or at the sequence level sequences."""


class ImportanceWeights(NamedTuple):
    """What multiplies the loss, and all that the statistics are made of. Nothing in it has a gradient."""

    weight: TokenFloat
    """Applied weights in [0, upper], shape of the inputs; 0 outside the mask, on missing tokens and where vetoed."""
    tokens: LogRatio
    units: Units
    bounded: Bounded
    outside: TokenBool
    """Valid tokens whose raw weight is above ``upper`` or below ``lower``."""
    veto: Vetoed
    counts: Counts
    layout: Layout
    upper: float
    lower: float


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
        :class:`ImportanceWeights`. Weights are NaN where ``response_mask`` is neither 0 nor 1, and everywhere if
        ``cu_seqlens`` does not fit the tokens; the counts are NaN in both cases. No plausible number comes from bad
        input, and nothing waits for the GPU.

    Raises:
        ValueError: Shapes, dtypes, level, mode or thresholds do not fit.

    Example:
        >>> old, rollout = torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[-1.5, -1.0, -3.0]])
        >>> importance_weights(old, rollout, torch.tensor([[1, 1, 1]]), upper=2.0).weight
        tensor([[1.6487, 1.0000, 2.0000]])
    """
    lower = require_thresholds(upper, lower, veto)
    tokens = compute_log_ratio(old_log_prob, rollout_log_prob, response_mask)
    layout = layout_of(tokens.log_ratio, cu_seqlens)
    units = aggregate(tokens, layout, level)
    bounded = bound(units, mode, upper, lower)
    vetoed = veto_sequences(tokens, layout, veto)
    weight, outside = bounded.weight, bounded.high | bounded.low
    if level != "token":
        weight, outside = layout.expand(weight), layout.expand(outside)
    kept = tokens.valid & ~layout.expand(vetoed.vetoed)
    weight = layout.admit(weight.to(tokens.log_ratio.dtype).where(kept, 0.0))
    counts = _count(units, layout.admit(tokens.flaw))
    return ImportanceWeights(
        weight, tokens, units, bounded, outside & tokens.valid, vetoed, counts, layout, upper, lower
    )


def _count(units: Units, flaw: Scalar) -> Counts:
    lengths, share = units.sequence_tokens, units.share
    return Counts(
        tokens=lengths.sum() + flaw,
        sequences=(lengths > 0).sum(dtype=lengths.dtype) + flaw,
        share=share.sum(dtype=accumulation_dtype(share)) + flaw,
    )
