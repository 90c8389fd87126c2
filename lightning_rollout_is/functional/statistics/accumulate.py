"""The two ways in which statistics merge: by adding sums, and by taking the larger of two maxima."""

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.functional.layout import accumulation_dtype
from lightning_rollout_is.types import Scalar


def total(x: Tensor) -> Scalar:
    """Sum of all elements, in float64 where the device has it.

    Example:
        >>> total(torch.tensor([True, True]))
        tensor(2., dtype=torch.float64)
    """
    return x.sum(dtype=accumulation_dtype(x))


def largest(x: Tensor, present: Tensor) -> Scalar:
    """Largest element where ``present``; -inf if there is none.

    Example:
        >>> largest(torch.tensor([1.0, 5.0]), torch.tensor([True, False]))
        tensor(1., dtype=torch.float64)
    """
    if x.numel() == 0:
        return x.new_full((), -torch.inf, dtype=accumulation_dtype(x))
    return x.where(present, -torch.inf).amax().to(accumulation_dtype(x))


def where_counted(count: Scalar, value: Scalar) -> Scalar:
    """``value``, or NaN where nothing was counted."""
    return value.where(count > 0, torch.nan)


class NoMaxima(NamedTuple):
    """For a statistic made of sums alone."""
