"""From token log ratios to the log weight of each unit: a token, or a sequence."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.choices import LEVELS, Level
from lightning_rollout_is.functional.layout import Layout
from lightning_rollout_is.functional.log_ratio import LogRatio
from lightning_rollout_is.types import SequenceFloat, UnitBool, UnitFloat

LOG_WEIGHT_LIMIT = 20.0
"""A log weight is clamped to plus or minus this before ``exp``, which stays finite in float32 then."""


class Units(NamedTuple):
    """The raw weights, and what each of them stands for. No statistic asks for the level again."""

    log_weight: UnitFloat
    """Raw, nats; for sequences not clamped, since their smallest weight is reported as it is."""
    excess: UnitFloat
    """Raw weight minus 1, from ``expm1`` of the clamped log weight: exact where healthy weights live."""
    present: UnitBool
    """Whether the unit holds a valid token."""
    tokens: UnitFloat
    """Number of valid tokens that share the weight."""
    share: UnitFloat
    """What the unit counts in the fractions above and below the thresholds: its tokens, or one sequence."""
    sequence_tokens: SequenceFloat
    """Number of valid tokens of each sequence."""
    sequence_excess: SequenceFloat
    """Mean raw weight over each sequence's valid tokens, minus 1; 0 for a sequence without any."""


def aggregate(log_ratio: LogRatio, layout: Layout, level: Level) -> Units:
    r"""Raw weights of a batch, by level.

    With :math:`\ell_t` the log ratio and :math:`n` the number of valid tokens of a sequence, the log weight is
    :math:`\ell_t` (token), :math:`\sum_t \ell_t` (sequence) or :math:`\frac{1}{n} \sum_t \ell_t` (geometric).

    Args:
        log_ratio: From :func:`compute_log_ratio`.
        layout: How its tokens form sequences.
        level: ``"token"``, ``"sequence"`` or ``"geometric"``.

    Raises:
        ValueError: Unknown level.

    Example:
        >>> from lightning_rollout_is.functional.layout import layout_of
        >>> from lightning_rollout_is.functional.log_ratio import compute_log_ratio
        >>> old, rollout, mask = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.2, -1.4]]), torch.ones(1, 2)
        >>> aggregate(compute_log_ratio(old, rollout, mask), layout_of(old), "geometric").log_weight
        tensor([0.3000], dtype=torch.float64)
    """
    lengths = layout.sum(log_ratio.valid)
    if level == "token":
        return _token_units(log_ratio, layout, lengths)
    if level not in LEVELS:
        raise ValueError(f"level = {level!r} is not allowed; allowed: {', '.join(LEVELS)}")
    log_weight = layout.sum(log_ratio.log_ratio)
    share = (lengths > 0).to(lengths.dtype)
    if level == "geometric":
        log_weight, share = log_weight / lengths.clamp(min=1.0), lengths
    excess = _excess(log_weight)
    return Units(log_weight, excess, lengths > 0, lengths, share, lengths, excess)


def _token_units(log_ratio: LogRatio, layout: Layout, lengths: Tensor) -> Units:
    log_weight = log_ratio.log_ratio.clamp(-LOG_WEIGHT_LIMIT, LOG_WEIGHT_LIMIT)
    excess = _excess(log_weight)
    one = log_ratio.valid.to(log_weight.dtype)
    mean_excess = layout.sum(excess) / lengths.clamp(min=1.0)
    return Units(log_weight, excess, log_ratio.valid, one, one, lengths, mean_excess)


def _excess(log_weight: Tensor) -> Tensor:
    return torch.expm1(log_weight.clamp(-LOG_WEIGHT_LIMIT, LOG_WEIGHT_LIMIT))
