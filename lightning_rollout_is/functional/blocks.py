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
from lightning_rollout_is.functional.sums import TokenSums, summed
from lightning_rollout_is.functional.thresholds import Thresholds
from lightning_rollout_is.types import TokenFloat

# Small enough for the last-level cache, and large enough that calling some forty operations a block does not count.
_TOKENS_PER_THREAD = 1 << 17
_SHARE = 12  # of a larger batch, however many threads: what a block writes over takes half the room of the weights
_LONGEST = 1 << 24  # float32 counts exactly up to here

Columns = tuple[Tensor, ...]


class Blocks(NamedTuple):
    """Log-probs and mask of a padded batch, (batch, seq) each."""

    old_log_prob: Tensor
    rollout_log_prob: Tensor
    response_mask: Tensor

    @classmethod
    def fit(cls, tensors: tuple[Tensor, Tensor, Tensor], layout: Layout, thresholds: Thresholds) -> bool:
        """Whether a batch can be read in blocks; :class:`Tokens` can read any."""
        if not isinstance(layout, PaddedLayout) or _traced():
            return False
        old, rollout, mask = tensors
        dtype = compute_dtype(old, rollout)
        return (
            all(type(tensor) is Tensor and tensor.device.type == "cpu" for tensor in tensors)
            and mask.numel() > 0
            and mask.shape[-1] <= _LONGEST
            and mask.dtype in (torch.bool, dtype, torch.float32, torch.int64, torch.int32, torch.uint8, torch.int8)
            # A token that is not valid has log ratio 0: here it must not count as outside or catastrophic.
            and thresholds.lower <= 1.0 <= thresholds.upper
            and thresholds.veto < 1.0
        )

    def indicated(self, thresholds: Thresholds) -> tuple[TokenFloat, TokenSums]:
        """As :meth:`Tokens.indicated`."""
        valid = self._empty(*self.response_mask.shape)
        exact, counts = _joined([block.read(thresholds.log_veto) for block, _ in self._split(valid)])
        return valid, self._sums(exact, counts)

    def weighed(self, mode: Mode, thresholds: Thresholds) -> tuple[TokenFloat, TokenSums, Units]:
        """As :meth:`Tokens.weighed`."""
        weight, columns = self._empty(*self.response_mask.shape), []
        for block, rows in self._split():
            read, weighed = block.read(thresholds.log_veto), block.weigh(weight[rows], mode, thresholds)
            columns.append((read[0] + weighed[0], read[1] + weighed[1]))
        exact, counts = _joined(columns)
        sums = self._sums(exact[:3], counts[:4])
        return weight, sums, _units(sums, exact[3:], counts[4:])

    def _sums(self, exact: Columns, counts: Columns) -> TokenSums:
        log_ratio, rollout, k3 = exact
        tokens, inside, catastrophic, malformed = counts
        return summed(
            tokens=tokens,
            inside=inside,
            log_ratio=log_ratio,
            rollout_log_prob=rollout,
            k3=k3,
            catastrophic=catastrophic,
            malformed=None if self.response_mask.dtype == torch.bool else malformed,
        )

    def _split(self, valid: Tensor | None = None) -> Iterator[tuple[Block, slice]]:
        """Each block, and the rows that it has of the batch; all write over the same tensors, but keep ``valid``."""
        count, length = self.response_mask.shape
        step = min(count, max(1, _block_size(count * length) // length))
        spare = [self._empty(step, length) for _ in range(4 if valid is None else 3)]
        wide = torch.empty(step, length, dtype=torch.float64)
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            places = [place[: rows.stop - start] for place in (*spare, wide)]
            kept = [] if valid is None else [valid[rows]]
            yield Block(*(tensor[rows] for tensor in self), *kept, *places), rows

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=compute_dtype(self.old_log_prob, self.rollout_log_prob))


def _block_size(tokens: int) -> int:
    return min(_TOKENS_PER_THREAD * torch.get_num_threads(), max(_TOKENS_PER_THREAD, tokens // _SHARE))


def _traced() -> bool:
    """Whether a compiler or a function transform (``torch.vmap``) is at work: neither can write over tensors."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def _joined(blocks: list[tuple[list[Tensor], list[Tensor]]]) -> tuple[Columns, Columns]:
    """What sums to (sequences,) over all blocks, in float64."""
    exact, counts = (torch.cat([torch.stack(columns) for columns in part], 1) for part in zip(*blocks, strict=True))
    return exact.unbind(), counts.double().unbind()


def _units(sums: TokenSums, exact: Columns, counts: Columns) -> Units:
    excess, bounded, squares = exact
    high, low, largest, smallest = counts
    return Units(
        excess=excess,
        bounded_excess=bounded,
        bounded_excess_squared=squares,
        high=high,
        low=low,
        share=sums.tokens,
        outside=high + low,
        largest=largest,
        smallest=smallest,
    )
