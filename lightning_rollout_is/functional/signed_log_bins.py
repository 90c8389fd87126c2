"""Fixed bins for values that spread over many orders of magnitude on both sides of 0."""

from __future__ import annotations

import torch
from torch import Tensor

_PER_OCTAVE = 4
_SMALLEST, _LARGEST = -17, 5  # powers of 2
_SIDE = _PER_OCTAVE * (_LARGEST - _SMALLEST)

BINS = 2 * _SIDE + 1
"""One for values within 2^-17 = 7.6e-6 of 0, and 88 on either side, four an octave, up to 2^5 = 32."""

_POSITIVE_EDGES = tuple(2.0 ** (_SMALLEST + step / _PER_OCTAVE) for step in range(_SIDE + 1))
EDGES = (*(-edge for edge in reversed(_POSITIVE_EDGES)), *_POSITIVE_EDGES)
"""Rising, ``BINS + 1`` of them. The outermost bins also take what lies beyond them."""

_POSITIVE_CENTERS = tuple(2.0 ** (_SMALLEST + (step + 0.5) / _PER_OCTAVE) for step in range(_SIDE))
CENTERS = (*(-center for center in reversed(_POSITIVE_CENTERS)), 0.0, *_POSITIVE_CENTERS)
"""The geometric middle of each bin: within 9.1% (a factor of 2^(1/8)) of every value in it, or within 7.6e-6 of 0."""


def bin_of(x: Tensor) -> Tensor:
    """The bin of each value.

    Args:
        x: Any shape, floating point, not NaN.

    Returns:
        Indices in [0, ``BINS``), int64, of the same shape.

    Example:
        >>> bins = bin_of(torch.tensor([-torch.inf, -0.1, 0.0, 1e-6, 0.1]))
        >>> bins
        tensor([  0,  34,  88,  88, 142])
        >>> round(CENTERS[142], 4)
        0.0964
    """
    steps = (torch.log2(x.abs()) - _SMALLEST) * _PER_OCTAVE
    # In floating point to the end: integer operations are not vectorised on a CPU.
    away = (steps.clamp(-1.0, _SIDE - 1.0) + 1.0).floor() * x.sign()
    return (away + _SIDE).to(torch.int64)
