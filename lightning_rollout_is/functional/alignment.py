"""Whether the two log-probs of a token lie at the same index: an offset by one passes every check of shapes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lightning_rollout_is.functional.layout import Layout, PackedLayout, accumulation_dtype, layout_of
from lightning_rollout_is.functional.log_ratio import compute_log_ratio
from lightning_rollout_is.types import CuSeqlens, Scalar, TokenBool, TokenFloat, TokenMask

SHIFTS = (-1, 0, 1)
"""Shift ``s`` compares the training log-prob at ``t`` with the rollout log-prob at ``t + s``."""
MARGIN = 2.0
"""A shift must come this many times closer than none. Real engines come closer by 5 to 10,000 times."""
MAJORITY = 2 / 3
"""The share of tokens that the shift must bring closer, so that no single outlier decides. Real engines: 0.84 to 1."""
FEWEST_TOKENS = 32
"""Fewer tokens prove nothing: of two unrelated policies, one shift may come closer by chance."""


class Alignment(NamedTuple):
    """How far the two policies are apart at each shift of the rollout tensor."""

    distance: Float[Tensor, 3]
    """Mean absolute log ratio at shifts -1, 0 and +1, nats, at least 0; NaN if no token was compared."""
    tokens: Scalar
    """Number of tokens compared, the same ones at each shift; NaN if the mask or ``cu_seqlens`` is malformed."""
    shifted: Bool[Tensor, ""]
    """At least 32 tokens were compared, and a shift by one halves the distance and brings two tokens in three closer.

    Never so for policies that are equal, or for log-probs that are constant within each sequence: no shift is closer
    there.
    """


@torch.no_grad()
def alignment(
    old_log_prob: TokenFloat,
    rollout_log_prob: TokenFloat,
    response_mask: TokenMask,
    cu_seqlens: CuSeqlens | None = None,
) -> Alignment:
    r"""Compare the policies with the rollout tensor shifted by -1, 0 and +1 tokens within each sequence.

    .. math:: D_s = \frac{1}{N} \sum_t
              \bigl| \log \pi_\text{train}(a_t) - \text{rollout\_log\_prob}_{t+s} \bigr|, \qquad s \in \{-1, 0, 1\}

    over the tokens whose two neighbours in the sequence are valid too, so that each shift is measured on the same
    tokens. Log-probs of neighbouring tokens differ by nats, those of one token under two engines by hundredths: the
    right shift stands out. A rollout that was written one index too far right has the smallest distance at +1, and so
    has a training log-prob that was taken one index too far left.

    Args:
        old_log_prob: Log-prob of each sampled token under the training policy, nats; (batch, seq), or (tokens,) with
            ``cu_seqlens``.
        rollout_log_prob: What shall be the log-prob of the same token under the rollout policy, same shape.
        response_mask: 1 on tokens that the policy generated, 0 elsewhere.
        cu_seqlens: Sequence boundaries of packed tokens.

    Returns:
        :class:`Alignment`, on the device; nothing waits for it.

    Raises:
        ValueError: Shapes or dtypes do not fit.

    Source:
        The average magnitude difference function of Ross et al. 1974, "Average magnitude difference function pitch
        extractor", between two signals.

    Example:
        >>> old = -torch.arange(40.0).remainder(7.0).unsqueeze(0)
        >>> right = alignment(old, old.roll(1, dims=1), torch.ones(1, 40))
        >>> right.distance, right.shifted
        (tensor([2.8158, 1.6579, 0.0000], dtype=torch.float64), tensor(True))
        >>> alignment(old, old - 0.1, torch.ones(1, 40)).shifted
        tensor(False)
    """
    tokens = compute_log_ratio(old_log_prob, rollout_log_prob, response_mask)
    layout = layout_of(tokens.log_ratio, cu_seqlens)
    old, rollout = tokens.old_log_prob, tokens.rollout_log_prob
    compared = _inner(tokens.valid & old.isfinite(), layout)
    here, width = old[..., 1:-1], old.shape[-1]
    apart = torch.stack([(here - rollout[..., 1 + shift : width - 1 + shift]).abs() for shift in SHIFTS])
    count = compared.sum(dtype=accumulation_dtype(old))
    if tokens.malformed is not None:
        count = count.masked_fill(tokens.malformed.any(), torch.nan)
    tokens_compared = layout.admit(count)
    distance = _total(apart.where(compared, 0.0)) / tokens_compared
    closer = _total((apart < apart[1]) & compared) / tokens_compared
    shifts = (distance * MARGIN < distance[1]) & (closer > MAJORITY)
    return Alignment(distance, tokens_compared, shifts.any() & (tokens_compared >= FEWEST_TOKENS))


def _total(x: Tensor) -> Tensor:
    """Sum over all tokens for each shift, (3, ...) to (3,)."""
    return x.flatten(1).sum(1, dtype=accumulation_dtype(x))


def _inner(valid: Tensor, layout: Layout) -> TokenBool:
    """Tokens, without the first and the last of the tensor, that stand between two valid ones of their sequence."""
    inner = valid[..., :-2] & valid[..., 1:-1] & valid[..., 2:]
    if isinstance(layout, PackedLayout):
        inner = inner & (layout.sequence_of_token[:-2] == layout.sequence_of_token[2:])
    return inner
