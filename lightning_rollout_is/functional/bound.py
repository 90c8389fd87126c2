"""From raw to bounded weights: truncate, or mask."""

from __future__ import annotations

from typing import NamedTuple

from lightning_rollout_is.choices import MODES, Mode
from lightning_rollout_is.functional.aggregate import LOG_WEIGHT_LIMIT, Units
from lightning_rollout_is.types import UnitBool, UnitFloat


class Bounded(NamedTuple):
    """Weights within the thresholds, and which of the raw ones were outside."""

    weight: UnitFloat
    """In [0, upper]; before the veto."""
    high: UnitBool
    """Raw weight above ``upper``."""
    low: UnitBool
    """Raw weight below ``lower``."""


def bound(units: Units, mode: Mode, upper: float, lower: float) -> Bounded:
    r"""Bound raw weights.

    .. math::
        \text{truncate: } \min(w, \text{upper}) \qquad
        \text{mask: } w \cdot \mathbb{1}[\text{lower} \le w \le \text{upper}]

    The lower threshold bounds nothing in mode ``"truncate"``; what lies below it is marked all the same.

    Args:
        units: Raw weights.
        mode: ``"truncate"`` or ``"mask"``.
        upper: Largest weight.
        lower: Smallest weight that mode ``"mask"`` keeps.

    Raises:
        ValueError: Unknown mode.

    Example:
        >>> import torch
        >>> log_weight = torch.tensor([-2.0, 0.0, 2.0])
        >>> one = torch.ones(3)
        >>> units = Units(log_weight, log_weight.expm1(), one.bool(), one, one, one, log_weight.expm1())
        >>> bound(units, "mask", upper=2.0, lower=0.5).weight
        tensor([0., 1., 0.])
    """
    if mode not in MODES:
        raise ValueError(f"mode = {mode!r} is not allowed; allowed: {', '.join(MODES)}")
    # exp, not 1 + excess: a weight of 1e-9 would be lost beside the 1.
    raw = units.log_weight.clamp(-LOG_WEIGHT_LIMIT, LOG_WEIGHT_LIMIT).exp()
    high, low = units.excess > upper - 1.0, units.excess < lower - 1.0
    weight = raw.clamp(max=upper) if mode == "truncate" else raw.masked_fill(high | low, 0.0)
    return Bounded(weight, high & units.present, low & units.present)
