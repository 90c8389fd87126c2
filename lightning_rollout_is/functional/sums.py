"""What the tokens of each sequence add up to: the only thing that statistics and sequence weights need of them."""

from __future__ import annotations

from typing import NamedTuple

import torch

from lightning_rollout_is.functional.excess import LOG_WEIGHT_LIMIT, clamped, excess_of
from lightning_rollout_is.functional.layout import Layout
from lightning_rollout_is.functional.log_ratio import LogRatio
from lightning_rollout_is.types import SequenceFloat


class TokenSums(NamedTuple):
    """Sums over the valid tokens of each sequence, (sequences,)."""

    tokens: SequenceFloat
    """Number of valid tokens; NaN where ``flaw`` is, so that every quotient is."""
    inside: SequenceFloat
    """Number of tokens inside the mask, with or without a usable log-prob."""
    log_ratio: SequenceFloat
    """Training minus rollout log-prob of the whole sequence, nats."""
    rollout_log_prob: SequenceFloat
    k3: SequenceFloat
    """Weight - 1 - log weight of each token, never negative."""
    catastrophic: SequenceFloat
    """Number of tokens whose ratio is under the veto threshold."""
    flaw: SequenceFloat
    """0, or NaN for a mask with values other than 0 and 1, or boundaries that do not fit the tokens."""
    present: SequenceFloat
    """1 for a sequence with a valid token, else 0; NaN where ``flaw`` is."""

    @property
    def old_log_prob(self) -> SequenceFloat:
        """Log-prob under the training policy, nats."""
        # This way round: the ratio is small where both log-probs are large, and the training policy's may be -inf.
        return self.rollout_log_prob + self.log_ratio


def token_sums(tokens: LogRatio, layout: Layout, log_veto: float) -> TokenSums:
    """Sum over the tokens of each sequence.

    Args:
        tokens: From :func:`compute_log_ratio`.
        layout: How they form sequences.
        log_veto: Token log ratio under which a sequence is vetoed, compared before any clamp; -inf for no veto.

    Example:
        >>> from lightning_rollout_is.functional.layout import layout_of
        >>> from lightning_rollout_is.functional.log_ratio import compute_log_ratio
        >>> old, rollout, mask = torch.tensor([[-12.0], [-1.0]]), torch.tensor([[-1.0], [-1.0]]), torch.ones(2, 1)
        >>> token_sums(compute_log_ratio(old, rollout, mask), layout_of(old), log_veto=-9.2).catastrophic
        tensor([1., 0.], dtype=torch.float64)
    """
    log_ratio = tokens.log_ratio
    count = layout.sum(tokens.valid)
    # Capping both terms at the same value keeps K3 from going below 0.
    k3 = excess_of(clamped(log_ratio)) - log_ratio.clamp(max=LOG_WEIGHT_LIMIT)
    return summed(
        tokens=count,
        inside=layout.sum(tokens.inside),
        log_ratio=layout.sum(log_ratio),
        rollout_log_prob=layout.sum(tokens.rollout_log_prob),
        k3=layout.sum(k3),
        # A log ratio outside the valid tokens is 0, which a threshold of 1 or more would reject.
        catastrophic=layout.sum((log_ratio < log_veto) & tokens.valid),
        malformed=layout.admit(torch.zeros_like(count)) if tokens.malformed is None else layout.sum(tokens.malformed),
    )


def summed(
    *, tokens: SequenceFloat, inside: SequenceFloat, malformed: SequenceFloat | None, **sums: SequenceFloat
) -> TokenSums:
    """The sums, given how much of the mask is malformed, ``None`` for nothing: no plausible quotient comes of that."""
    if malformed is None:
        return TokenSums(tokens=tokens, inside=inside, flaw=torch.zeros_like(tokens), present=tokens.sign(), **sums)
    flaw = malformed.masked_fill(malformed != 0.0, torch.nan)
    present = tokens.sign() + flaw  # not the sign of the sum, which is 0 for NaN
    return TokenSums(tokens=tokens + flaw, inside=inside, flaw=flaw, present=present, **sums)
