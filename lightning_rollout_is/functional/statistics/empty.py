"""Values that nothing was counted for, and statistics without sums or maxima."""

from typing import NamedTuple

import torch

from lightning_rollout_is.types import Scalar


def where_counted(count: Scalar, value: Scalar) -> Scalar:
    """``value``, or NaN where nothing was counted."""
    return value.where(count > 0, torch.nan)


class NoSums(NamedTuple):
    """For a statistic made of maxima alone."""


class NoMaxima(NamedTuple):
    """For a statistic made of sums alone."""
