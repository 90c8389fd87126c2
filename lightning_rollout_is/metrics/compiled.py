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

    def __call__(
        self,
        old: Tensor,
        rollout: Tensor,
        mask: Tensor,
        cu_seqlens: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> Measured:
        """As :func:`measure`."""
        batch = old, rollout, mask, cu_seqlens, groups
        if self._broken:
            return self._eager(*batch)
        try:
            return self._run(*batch)
        except Exception as error:
            # What is refused here as well is the caller's fault, and all else the compiler's.
            measured = self._eager(*batch)
            self._broken = True
            reason = (str(error).strip() or "no reason given").splitlines()[0]
            rank_zero_warn(
                "the importance weights could not be compiled and are computed without a compiler, which gives the "
                f"same values; leave out compile=True, or mend this: {type(error).__name__}: {reason}",
                UserWarning,
            )
            return measured

    def _run(
        self, old: Tensor, rollout: Tensor, mask: Tensor, cu_seqlens: Tensor | None, groups: Tensor | None
    ) -> Measured:
        if self._compiled is None:
            self._compiled = torch.compile(self._of_bytes, fullgraph=True, options=_options())
        is_bool = mask.dtype == torch.bool
        batch = old, rollout, mask.view(torch.int8) if is_bool else mask, cu_seqlens, groups
        tensors = [None if tensor is None else tensor.detach() for tensor in batch]
        for tensor in tensors:
            if tensor is not None:
                # Not `dynamic=True`, which makes a changeable argument of every threshold as well.
                torch._dynamo.maybe_mark_dynamic(tensor, list(range(tensor.ndim)))
        return self._compiled(*tensors, is_bool)

    def _of_bytes(
        self,
        old: Tensor,
        rollout: Tensor,
        mask: Tensor,
        cu_seqlens: Tensor | None,
        groups: Tensor | None,
        is_bool: bool,
    ) -> Measured:
        # The C++ that is made for a CPU reads a bool mask element by element, and int8 sixteen at a time.
        return self._eager(old, rollout, mask.to(torch.int32) != 0 if is_bool else mask, cu_seqlens, groups)


@functools.lru_cache
def compiled_measure(config: RolloutISConfig, packing: Packing) -> CompiledMeasure:
    """One compiled function for all metrics of the same settings: copies of a metric compile nothing."""
    return CompiledMeasure(config, packing)


def _options() -> dict[str, str | int | bool | Callable[..., object]]:
    """Keep intermediate results in registers, however many operations they take and use them.

    By default some go to memory: three tensors of the batch's size at the token level.
    """
    wanted = {"realize_opcount_threshold": 10_000, "realize_reads_threshold": 1_000}
    known = set(torch._inductor.list_options())
    return {name: value for name, value in wanted.items() if name in known}
