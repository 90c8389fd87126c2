"""From tokens to raw weights: each token's own, or one for the whole sequence."""

from __future__ import annotations

from typing import NamedTuple

import torch

from lightning_rollout_is.choices import LEVELS, Level
from lightning_rollout_is.functional.bound import outside
from lightning_rollout_is.functional.excess import clamped, excess_of
from lightning_rollout_is.functional.layout import Layout, accumulation_dtype
from lightning_rollout_is.functional.log_ratio import LogRatio
from lightning_rollout_is.functional.sums import TokenSums
from lightning_rollout_is.functional.thresholds import Thresholds
from lightning_rollout_is.types import SequenceFloat


class Units(NamedTuple):
    """The raw weights of each sequence, (sequences,). No statistic asks for the level again."""

    excess: SequenceFloat
    """Sum over valid tokens of the raw weight minus 1: exact where healthy weights live."""
    bounded_excess: SequenceFloat
    """The same of weights clamped to [lower, upper]."""
    bounded_excess_squared: SequenceFloat
    high: SequenceFloat
    """How much of ``share`` is above the upper threshold."""
    low: SequenceFloat
    """How much of ``share`` is below the lower threshold."""
    share: SequenceFloat
    """What the fractions above and below are of: valid tokens, or at the sequence level 1."""
    outside: SequenceFloat
    """Number of valid tokens whose raw weight is above ``upper`` or below ``lower``."""
    largest: SequenceFloat
    """Largest raw log weight, nats; means nothing without a valid token."""
    smallest: SequenceFloat
    """Smallest raw log weight, nats, for sequence weights not clamped; means nothing without a valid token."""


def token_units(tokens: LogRatio, sums: TokenSums, layout: Layout, thresholds: Thresholds) -> Units:
    r"""Every token has a weight of its own, of log :math:`\ell_t`.

    Args:
        tokens: From :func:`compute_log_ratio`.
        sums: Theirs.
        layout: How they form sequences.
        thresholds: Of the weight.
    """
    log_weight = clamped(tokens.log_ratio)
    excess = excess_of(log_weight)
    # Widened before it is squared: what float32 rounds off the squares would remain as a spread that is not there.
    bounded = excess.clamp(thresholds.lower - 1.0, thresholds.upper - 1.0).where(tokens.valid, 0.0)
    high, low = (layout.sum(beyond & tokens.valid) for beyond in outside(excess, thresholds))
    return Units(
        excess=layout.sum(excess),
        bounded_excess=layout.sum(bounded),
        bounded_excess_squared=layout.sum(bounded.to(accumulation_dtype(bounded)).square()),
        high=high,
        low=low,
        share=sums.tokens,
        outside=high + low,
        largest=layout.largest(log_weight.where(tokens.valid, -torch.inf)),
        smallest=-layout.largest((-log_weight).where(tokens.valid, -torch.inf)),
    )


def sequence_units(sums: TokenSums, level: Level, thresholds: Thresholds) -> tuple[SequenceFloat, Units]:
    r"""All tokens of a sequence share one weight.

    With :math:`\ell_t` the log ratio and :math:`n` the number of valid tokens, its log is :math:`\sum_t \ell_t`
    (sequence) or :math:`\frac{1}{n} \sum_t \ell_t` (geometric).

    Args:
        sums: Of the tokens of each sequence.
        level: ``"sequence"`` or ``"geometric"``.
        thresholds: Of the weight.

    Returns:
        The raw log weights, (sequences,), within plus or minus 20 nats, and what they amount to.

    Raises:
        ValueError: Another level.
    """
    require_level(level)
    count, log_weight, share = sums.tokens, sums.log_ratio, sums.present
    if level == "geometric":
        log_weight, share = log_weight / count.clamp(min=1.0), count
    excess = excess_of(clamped(log_weight))
    bounded = excess.clamp(thresholds.lower - 1.0, thresholds.upper - 1.0)
    high, low = outside(excess, thresholds)
    units = Units(
        excess=excess * count,
        bounded_excess=bounded * count,
        bounded_excess_squared=bounded.square() * count,
        high=share * high,
        low=share * low,
        share=share,
        outside=count * (high | low),
        largest=log_weight,
        smallest=log_weight,
    )
    return clamped(log_weight), units


def require_level(level: str) -> None:
    """Raise ``ValueError`` for an unknown level."""
    if level not in LEVELS:
        raise ValueError(f"level = {level!r} is not allowed; allowed: {', '.join(LEVELS)}")
