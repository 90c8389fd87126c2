"""From raw to bounded weights: truncate, or mask."""

from __future__ import annotations

from torch import Tensor

from lightning_rollout_is.choices import MODES, Mode
from lightning_rollout_is.functional.excess import excess_of
from lightning_rollout_is.functional.thresholds import Thresholds
from lightning_rollout_is.types import UnitFloat


def bound(log_weight: UnitFloat, mode: Mode, thresholds: Thresholds) -> UnitFloat:
    r"""Bounded weights of raw log weights.

    .. math::
        \text{truncate: } \min(w, \text{upper}) \qquad
        \text{mask: } w \cdot \mathbb{1}[\text{lower} \le w \le \text{upper}]

    The lower threshold bounds nothing in mode ``"truncate"``.

    Args:
        log_weight: Within plus or minus 20, nats.
        mode: ``"truncate"`` or ``"mask"``.
        thresholds: Of the weight.

    Returns:
        Weights in [0, upper], before the veto.

    Raises:
        ValueError: Unknown mode.

    Example:
        >>> import torch
        >>> bound(torch.tensor([-2.0, 0.0, 2.0]), "mask", Thresholds(upper=2.0, lower=0.5, veto=0.0))
        tensor([0., 1., 0.])
    """
    require_mode(mode)
    # exp, not 1 + excess: a weight of 1e-9 would be lost beside the 1.
    weight = log_weight.exp()
    if mode == "truncate":
        return weight.clamp(max=thresholds.upper)
    high, low = outside(excess_of(log_weight), thresholds)
    return weight.masked_fill(high | low, 0.0)


def outside(excess: Tensor, thresholds: Thresholds) -> tuple[Tensor, Tensor]:
    """Where a raw weight, given minus 1, is above the upper and where it is below the lower threshold."""
    return excess > thresholds.upper - 1.0, excess < thresholds.lower - 1.0


def require_mode(mode: str) -> None:
    """Raise ``ValueError`` for an unknown mode."""
    if mode not in MODES:
        raise ValueError(f"mode = {mode!r} is not allowed; allowed: {', '.join(MODES)}")
