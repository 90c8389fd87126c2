"""A pass over the tokens on a CPU without a compiler: some sequences at a time, never leaving its cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.choices import Mode
from lightning_rollout_is.functional.aggregate import Units
from lightning_rollout_is.functional.block import Block
from lightning_rollout_is.functional.layout import Layout, PaddedLayout
from lightning_rollout_is.functional.log_ratio import compute_dtype
from lightning_rollout_is.functional.sums import TokenSums, with_flaw
from lightning_rollout_is.functional.thresholds import Thresholds
from lightning_rollout_is.types import TokenFloat

# Seven float32 tensors of this size fit the second-level cache of a core, and ATen does not divide one among threads.
_TOKENS = 1 << 15
_LONGEST = 1 << 24  # float32 counts exactly up to here


class Blocks(NamedTuple):
    """Log-probs and mask of a padded batch, (batch, seq) each."""

    old_log_prob: Tensor
    rollout_log_prob: Tensor
    response_mask: Tensor

    @classmethod
    def fit(cls, tensors: tuple[Tensor, Tensor, Tensor], layout: Layout, thresholds: Thresholds) -> bool:
        """Whether a batch can be read in blocks; :class:`Tokens` can read any."""
        if not isinstance(layout, PaddedLayout) or torch.compiler.is_compiling():
            return False
        old, rollout, mask = tensors
        dtype = compute_dtype(old, rollout)
        return (
            all(type(tensor) is Tensor and tensor.device.type == "cpu" for tensor in tensors)
            and 0 < mask.numel()
            and mask.shape[-1] <= _LONGEST
            and torch.promote_types(dtype, mask.dtype) == dtype
            # A token that is not valid has log ratio 0: here it must not count as outside or catastrophic.
            and thresholds.lower <= 1.0 <= thresholds.upper
            and thresholds.veto < 1.0
        )

    def indicated(self, thresholds: Thresholds) -> tuple[TokenFloat, TokenSums]:
        """As :meth:`Tokens.indicated`."""
        valid, spare = self._empty(*self.response_mask.shape), self._spare(3)
        parts = [
            torch.stack(Block(*inputs, valid[rows], *spare[:, : len(inputs[0])]).read(thresholds.log_veto))
            for rows, inputs in self._split()
        ]
        return valid, with_flaw(TokenSums(*torch.cat(parts, 1).unbind()))

    def weighed(self, mode: Mode, thresholds: Thresholds) -> tuple[TokenFloat, TokenSums, Units]:
        """As :meth:`Tokens.weighed`."""
        weight, spare, parts = self._empty(*self.response_mask.shape), self._spare(4), []
        for rows, inputs in self._split():
            block = Block(*inputs, *spare[:, : len(inputs[0])])
            parts.append(torch.stack([*block.read(thresholds.log_veto), *block.weigh(weight[rows], mode, thresholds)]))
        columns = torch.cat(parts, 1).unbind()
        sums = with_flaw(TokenSums(*columns[:7]))
        return weight, sums, _units(sums, *columns[7:])

    def _split(self) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
        """Blocks of rows: where they are, and the three tensors there."""
        count, step = self.response_mask.shape[0], self._rows_of_a_block
        for start in range(0, count, step):
            rows = slice(start, start + step)
            yield rows, tuple(tensor.detach()[rows] for tensor in self)

    @property
    def _rows_of_a_block(self) -> int:
        rows, length = self.response_mask.shape
        return min(rows, max(1, _TOKENS // length))

    def _spare(self, count: int) -> Tensor:
        return self._empty(count, self._rows_of_a_block, self.response_mask.shape[1])

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=compute_dtype(self.old_log_prob, self.rollout_log_prob))


def _units(sums: TokenSums, *columns: Tensor) -> Units:
    excess, bounded, squares, high, low, largest, smallest = columns
    present = sums.tokens > 0
    return Units(
        excess=excess,
        bounded_excess=bounded,
        bounded_excess_squared=squares,
        high=high,
        low=low,
        share=sums.tokens,
        outside=high + low,
        largest=largest.where(present, -torch.inf),
        smallest=smallest.where(present, torch.inf),
    )
