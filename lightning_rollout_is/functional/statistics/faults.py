"""What is wrong with a batch, as maxima: it reaches all ranks with the statistics, at no cost of its own."""

from typing import NamedTuple

import torch

from lightning_rollout_is.functional.layout import PackedLayout
from lightning_rollout_is.functional.statistics.empty import NoSums
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class FaultMaxima(NamedTuple):
    """1 where a batch had the fault, 0 or -inf where none had it."""

    absent_old_log_prob: Scalar
    """Not a tensor. Such a batch gives no weights: whoever refuses it notes the fault."""
    absent_rollout_log_prob: Scalar
    unfit_inputs: Scalar
    """Shapes or dtypes that do not belong together; noted in the same way."""
    malformed_mask: Scalar
    """Values other than 0 and 1."""
    unfit_boundaries: Scalar
    """``cu_seqlens`` does not start with 0, falls, or does not end with the number of tokens."""


def fault_update(weights: ImportanceWeights) -> tuple[NoSums, FaultMaxima]:
    """Faults in the values of each sequence, which are known on the device alone.

    Example:
        >>> import torch
        >>> from lightning_rollout_is.functional.weights import importance_weights
        >>> mask = torch.tensor([[1.0, 0.5]])
        >>> weights = importance_weights(torch.zeros(1, 2), torch.zeros(1, 2), mask, upper=2.0)
        >>> fault_update(weights)[1].malformed_mask
        tensor([1.], dtype=torch.float64)
    """
    flawed = weights.sums.flaw.isnan().to(weights.sums.flaw.dtype)
    none = torch.zeros_like(flawed)
    unfit = flawed * ~weights.layout.faithful if isinstance(weights.layout, PackedLayout) else none
    return NoSums(), FaultMaxima(none, none, none, flawed - unfit, unfit)


def fault_compute(_: NoSums, __: FaultMaxima) -> dict[str, Scalar]:
    """No named value: a fault is said, not drawn."""
    return {}
