"""Thresholds that mean something: checked where tensors are computed, for callers without a configuration."""

from __future__ import annotations

import math
from numbers import Real
from typing import NamedTuple


class Thresholds(NamedTuple):
    """What a weight is compared with, all above 0."""

    upper: float
    lower: float
    """At most ``upper``."""
    veto: float
    """Token ratio; 0 for no veto."""

    @property
    def log_veto(self) -> float:
        """The veto in nats, -inf for none."""
        return math.log(self.veto) if self.veto > 0.0 else -math.inf


def require_thresholds(upper: float, lower: float | None, veto: float | None) -> Thresholds:
    """Check the thresholds of a weight.

    Args:
        upper: Upper threshold, finite and above 0.
        lower: Lower threshold in (0, upper]; ``None`` means ``1 / upper``.
        veto: Token ratio, finite and above 0; ``None`` for no veto.

    Raises:
        ValueError: A threshold is no number, out of range, or ``lower`` is above ``upper``: no weight would be kept.

    Example:
        >>> require_thresholds(2.0, None, 1e-4)
        Thresholds(upper=2.0, lower=0.5, veto=0.0001)
        >>> require_thresholds(2.0, None, 0.0)
        Traceback (most recent call last):
        ValueError: veto = 0.0 is not allowed; allowed: a finite number above 0
    """
    _require_positive("upper", upper)
    if veto is not None:
        _require_positive("veto", veto)
    if lower is None:
        lower = 1.0 / upper
    _require_positive("lower", lower)
    if lower > upper:
        raise ValueError(f"lower = {lower:g} is above upper = {upper:g}, so no weight would be kept; give both")
    return Thresholds(float(upper), float(lower), 0.0 if veto is None else float(veto))


def _require_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} = {value!r} is not allowed; allowed: a finite number above 0")
