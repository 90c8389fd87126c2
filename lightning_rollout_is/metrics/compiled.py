"""Weights and statistics in one kernel, by ``torch.compile``."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.metrics.measure import Measured, measure
from lightning_rollout_is.metrics.packed import Packing


class CompiledMeasure:
    """:func:`measure` under fixed settings, compiled at its first call for any batch size and length.

    Where that fails, it warns once and measures without a compiler from then on.
    """

    def __init__(self, config: RolloutISConfig, packing: Packing) -> None:
        self._eager = functools.partial(measure, config, packing)
        self._compiled: Callable[..., Measured] | None = None
        self._broken = False

    def __call__(self, old: Tensor, rollout: Tensor, mask: Tensor, cu_seqlens: Tensor | None = None) -> Measured:
        """As :func:`measure`."""
        if self._broken:
            return self._eager(old, rollout, mask, cu_seqlens)
        try:
            return self._run(old, rollout, mask, cu_seqlens)
        except Exception as error:
            # What is refused here as well is the caller's fault, and all else the compiler's.
            measured = self._eager(old, rollout, mask, cu_seqlens)
            self._broken = True
            rank_zero_warn(
                f"the importance weights could not be compiled and are computed without a compiler, which gives the "
                f"same values: {type(error).__name__}: {str(error).strip().splitlines()[0]}",
                UserWarning,
            )
            return measured

    def _run(self, old: Tensor, rollout: Tensor, mask: Tensor, cu_seqlens: Tensor | None) -> Measured:
        if self._compiled is None:
            self._compiled = torch.compile(self._of_bytes, dynamic=True, fullgraph=True)
        is_bool = mask.dtype == torch.bool
        mask = mask.view(torch.int8) if is_bool else mask
        return self._compiled(old.detach(), rollout.detach(), mask.detach(), cu_seqlens, is_bool)

    def _of_bytes(
        self, old: Tensor, rollout: Tensor, mask: Tensor, cu_seqlens: Tensor | None, is_bool: bool
    ) -> Measured:
        # The C++ that is made for a CPU reads a bool mask element by element, and int8 sixteen at a time.
        return self._eager(old, rollout, mask.to(torch.int32) != 0 if is_bool else mask, cu_seqlens)


@functools.lru_cache
def compiled_measure(config: RolloutISConfig, packing: Packing) -> CompiledMeasure:
    """One compiled function for all metrics of the same settings: copies of a metric compile nothing."""
    return CompiledMeasure(config, packing)
