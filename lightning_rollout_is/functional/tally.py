"""Sums over the tokens of each bin."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_rollout_is.functional.layout import accumulation_dtype


def tally(bins: Tensor, count: int, *values: Tensor) -> list[Tensor]:
    """Add up values by bin.

    Args:
        bins: Index of each token's bin in [0, ``count``), int64, any shape.
        count: Number of bins.
        values: What each token adds, finite, same shape; 0 for a token that does not count.

    Returns:
        For each of the values (lanes, ``count``), in :func:`accumulation_dtype`; their sum over the first dimension is
        the result.

    Example:
        >>> tally(torch.tensor([0, 2, 2]), 3, torch.tensor([1.0, 2.0, 3.0]))
        [tensor([[1., 0., 5.]], dtype=torch.float64)]
    """
    lanes, places = _lanes(bins.device), bins.flatten()
    if lanes > 1:
        places = places + torch.arange(places.shape[0], device=places.device) % lanes * count
    dtype = accumulation_dtype(bins)
    zeros = torch.zeros(lanes * count, dtype=dtype, device=bins.device)
    return [zeros.index_add(0, places, value.flatten().to(dtype)).view(lanes, count) for value in values]


def _lanes(device: torch.device) -> int:
    # Neighbours on a GPU add at the same time, and mostly to the same bin: apart from each other they need not wait.
    return 1 if device.type == "cpu" else 64
