"""What lies beyond the specification's statistics: a second pass over the tokens, made only where it is asked for."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.functional.excess import clamped, excess_of
from lightning_rollout_is.functional.layout import Layout, PaddedLayout, accumulation_dtype
from lightning_rollout_is.functional.log_ratio import LogRatio, compute_log_ratio
from lightning_rollout_is.functional.signed_log_bins import BINS, bin_of
from lightning_rollout_is.functional.tally import tally
from lightning_rollout_is.types import SequenceFloat, TokenFloat, TokenMask

DECILES = 10
"""Parts of a response in the position profile."""
CONFIDENT = math.log(0.5)
"""Rollout log-prob from which on a token was sampled with confidence, nats."""
DISAGREES = -2.0
"""Log ratio under which the training policy finds a token far less likely, nats."""

_TOKENS_AT_ONCE = 1 << 17  # what stays in the cache of a CPU


class Details(NamedTuple):
    """Sums over valid tokens: of each sequence, (sequences,), or by bin, (lanes, bins) to be added up."""

    excess: SequenceFloat
    """Each token's own raw weight minus 1, at every level."""
    excess_squared: SequenceFloat
    applied: SequenceFloat
    """The weights that multiply the loss."""
    applied_squared: SequenceFloat
    probability_gap: SequenceFloat
    """|training - rollout probability| of the sampled token."""
    largest_probability_gap: SequenceFloat
    confident_disagreements: SequenceFloat
    """Tokens that the rollout policy gave probability 0.5 or more, and the training policy e^2 times less."""
    log_ratios: Tensor
    """Counts by :func:`bin_of` the log ratio."""
    applied_weights: Tensor
    """Counts by :func:`bin_of` the log of the applied weight; 0 lies in the first bin."""
    decile_tokens: Tensor
    """Counts by tenth of the response."""
    decile_abs_log_ratio: Tensor
    """By tenth of the response, of log ratios within plus or minus 20 nats; so is K3."""
    decile_k3: Tensor


@torch.no_grad()
def token_details(
    old_log_prob: TokenFloat,
    rollout_log_prob: TokenFloat,
    response_mask: TokenMask,
    weight: TokenFloat,
    layout: Layout,
) -> Details:
    """Read the tokens of a batch once more.

    Args:
        old_log_prob: Log-prob under the training policy, nats; (batch, seq), or (tokens,).
        rollout_log_prob: Log-prob under the rollout policy.
        response_mask: 1 on tokens that the policy generated, 0 elsewhere.
        weight: Applied weights of the same tokens.
        layout: How they form sequences.

    Example:
        >>> old, rollout, mask = torch.tensor([[-3.0, -1.0]]), torch.tensor([[-0.5, -1.0]]), torch.ones(1, 2)
        >>> token_details(old, rollout, mask, torch.ones(1, 2), PaddedLayout(1)).confident_disagreements
        tensor([1.], dtype=torch.float64)
    """
    tensors = old_log_prob, rollout_log_prob, response_mask, weight
    if weight.device.type != "cpu" or not isinstance(layout, PaddedLayout) or torch.compiler.is_compiling():
        return _details(compute_log_ratio(*tensors[:3]), weight, layout)
    rows = max(1, _TOKENS_AT_ONCE // max(1, weight.shape[-1]))
    parts = zip(*(torch.split(tensor, rows) for tensor in tensors), strict=True)
    found = [_details(compute_log_ratio(*part), block, PaddedLayout(len(block))) for *part, block in parts]
    return Details(*(torch.cat(columns) for columns in zip(*found, strict=True)))


def _details(tokens: LogRatio, weight: Tensor, layout: Layout) -> Details:
    log_ratio, wide = tokens.log_ratio, accumulation_dtype(weight)
    excess = excess_of(clamped(log_ratio))
    # The larger probability times the relative gap: neither overflows, and equal probabilities differ by exactly 0.
    larger = torch.maximum(tokens.old_log_prob, tokens.rollout_log_prob).exp()
    gap = larger * -excess_of(-log_ratio.abs())
    disagrees = (tokens.rollout_log_prob >= CONFIDENT) & (log_ratio < DISAGREES)
    valid = tokens.valid.to(weight.dtype)
    (log_ratios,) = tally(bin_of(log_ratio), BINS, valid)
    (applied_weights,) = tally(bin_of(weight.nan_to_num(0.0).log()), BINS, valid)
    return Details(
        layout.sum(excess),
        layout.sum(excess.square()),
        layout.sum(weight),
        layout.sum(weight.to(wide).square()),
        layout.sum(gap),
        layout.largest(gap),
        layout.sum(disagrees),
        log_ratios,
        applied_weights,
        *_by_decile(tokens, excess, layout),
    )


def _by_decile(tokens: LogRatio, excess: Tensor, layout: Layout) -> list[Tensor]:
    """Tokens, |log ratio| and K3 in each tenth of the response, by a token's place among those inside the mask."""
    log_ratio = tokens.log_ratio
    length = layout.expand(layout.sum(tokens.inside)).nan_to_num(1.0).clamp(min=1.0).to(log_ratio.dtype)
    place = layout.place(tokens.inside).clamp(min=0).to(log_ratio.dtype)
    decile = (place * DECILES / length).to(torch.int64).clamp(max=DECILES - 1)
    # Clamped below as well: one token that the training policy finds impossible would spoil a tenth of all responses.
    log_ratio = clamped(log_ratio)
    return tally(decile, DECILES, tokens.valid, log_ratio.abs(), excess - log_ratio)
