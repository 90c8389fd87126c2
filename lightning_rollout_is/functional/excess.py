"""Weight minus 1 from a log weight, exact where healthy weights live, compiled or not."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG_WEIGHT_LIMIT = 20.0
"""A log weight is clamped to plus or minus this before ``exp``, which stays finite in float32 then."""

_TERMS = 7


def clamped(log_weight: Tensor) -> Tensor:
    """A log weight within plus or minus 20."""
    return log_weight.clamp(-LOG_WEIGHT_LIMIT, LOG_WEIGHT_LIMIT)


def excess_of(log_weight: Tensor) -> Tensor:
    r"""Weight minus 1, :math:`e^x - 1`, of a clamped log weight ``x`` in nats, any shape.

    Example:
        >>> excess_of(torch.tensor([1e-6]))
        tensor([1.0000e-06])
    """
    # The C++ that torch.compile writes for a CPU takes expm1(x) for exp(x) - 1, which loses all digits near 0.
    if torch.compiler.is_compiling() and log_weight.device.type == "cpu":
        return _series_near_zero(log_weight)
    return torch.expm1(log_weight)


def _series_near_zero(x: Tensor) -> Tensor:
    """The Taylor series where its first terms are exact to the last bit, ``exp(x) - 1`` outside."""
    near = 0.01 if x.dtype == torch.float64 else 0.25
    series = torch.full_like(x, 1.0 / math.factorial(_TERMS))
    for term in range(_TERMS - 1, 0, -1):
        series = series * x + 1.0 / math.factorial(term)
    return torch.where(x.abs() < near, x * series, x.exp() - 1.0)
