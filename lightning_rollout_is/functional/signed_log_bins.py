"""Fixed bins for values that spread over many orders of magnitude on both sides of 0."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_rollout_is.functional.layout import accumulation_dtype

_PER_OCTAVE = 4
_SMALLEST, _LARGEST = -17, 5  # powers of 2
_SIDE = _PER_OCTAVE * (_LARGEST - _SMALLEST)

BINS = 2 * _SIDE + 1
"""One for values within 2^-17 = 7.6e-6 of 0, and 88 on either side, four an octave, up to 2^5 = 32."""

_POSITIVE_EDGES = tuple(2.0 ** (_SMALLEST + step / _PER_OCTAVE) for step in range(_SIDE + 1))
EDGES = (*(-edge for edge in reversed(_POSITIVE_EDGES)), *_POSITIVE_EDGES)
"""Rising, ``BINS + 1`` of them. The outermost bins also take what lies beyond them."""


def bin_of(x: Tensor) -> Tensor:
    """The bin of each value.

    Args:
        x: Any shape, floating point, not NaN.

    Returns:
        Indices in [0, ``BINS``), int64, of the same shape.

    Example:
        >>> bins = bin_of(torch.tensor([-torch.inf, -0.1, 0.0, 1e-6, 0.1]))
        >>> bins
        tensor([  0,  33,  88,  88, 143])
        >>> round(bin_centers(torch.device("cpu"))[143].item(), 4)
        0.0964
    """
    steps = (torch.log2(x.abs()) - _SMALLEST) * _PER_OCTAVE
    # In floating point to the end: integer operations are not vectorised on a CPU.
    away = (steps.clamp(-1.0, _SIDE - 1.0) + 1.0).floor() * x.sign()
    return (away + _SIDE).to(torch.int64)


def bin_centers(device: torch.device) -> Tensor:
    """The geometric middle of each bin, (``BINS``,), in :func:`accumulation_dtype`; 0 for the one about 0.

    It is within 9.1% (a factor of 2^(1/8)) of every value in its bin, or within 7.6e-6 of those about 0.
    """
    # Computed there: a constant would have to be copied to the device.
    step = torch.arange(-_SIDE, _SIDE + 1, device=device).to(accumulation_dtype(torch.empty(0, device=device)))
    return torch.exp2((step.abs() - 0.5) / _PER_OCTAVE + _SMALLEST) * step.sign()
