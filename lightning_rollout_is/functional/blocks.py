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

# Small enough for the last-level cache, large enough that calling some forty operations a block does not count.
_TOKENS = 1 << 17
_LONGEST = 1 << 24  # float32 counts exactly up to here


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
        read = [block.read(thresholds.log_veto) for block, _ in self._split(valid)]
        return valid, _token_sums(*_joined(read))

    def weighed(self, mode: Mode, thresholds: Thresholds) -> tuple[TokenFloat, TokenSums, Units]:
        """As :meth:`Tokens.weighed`."""
        weight, read, weighed = self._empty(*self.response_mask.shape), [], []
        for block, rows in self._split():
            read.append(block.read(thresholds.log_veto))
            weighed.append(block.weigh(weight[rows], mode, thresholds))
        sums = _token_sums(*_joined(read))
        return weight, sums, _units(sums, *_joined(weighed))

    def _split(self, valid: Tensor | None = None) -> Iterator[tuple[Block, slice]]:
        """Each block, and the rows that it has of the batch; all write over the same tensors, but keep ``valid``."""
        count, length = self.response_mask.shape
        step = min(count, max(1, _TOKENS // length))
        spare = [self._empty(step, length) for _ in range(4 if valid is None else 3)]
        wide = torch.empty(step, length, dtype=torch.float64)
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            places = [place[: rows.stop - start] for place in (*spare, wide)]
            kept = [] if valid is None else [valid[rows]]
            yield Block(*(tensor[rows] for tensor in self), *kept, *places), rows

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=compute_dtype(self.old_log_prob, self.rollout_log_prob))


def _traced() -> bool:
    """Whether a compiler or a function transform (``torch.vmap``) is at work: neither can write over tensors."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def _joined(blocks: list[tuple[list[Tensor], list[Tensor]]]) -> tuple[Tensor, Tensor]:
    """Columns of all sequences from those of each block, (columns, sequences) each, in float64."""
    exact, counts = ([torch.stack(columns) for columns in part] for part in zip(*blocks, strict=True))
    return torch.cat(exact, 1), torch.cat(counts, 1).double()


def _token_sums(exact: Tensor, counts: Tensor) -> TokenSums:
    log_ratio, rollout, k3 = exact
    tokens, inside, catastrophic, malformed = counts
    return with_flaw(TokenSums(tokens, inside, log_ratio, rollout, k3, catastrophic, malformed))


def _units(sums: TokenSums, exact: Tensor, counts: Tensor) -> Units:
    excess, bounded, squares = exact
    high, low, largest, smallest = counts
    absent = sums.tokens == 0
    return Units(
        excess=excess,
        bounded_excess=bounded,
        bounded_excess_squared=squares,
        high=high,
        low=low,
        share=sums.tokens,
        outside=high + low,
        largest=largest.masked_fill(absent, -torch.inf),
        smallest=smallest.masked_fill(absent, torch.inf),
    )
