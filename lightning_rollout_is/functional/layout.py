"""How tokens form sequences: padded rows, or packed end to end. Everything else is written once for both."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.types import CuSeqlens


class PaddedLayout(NamedTuple):
    """Tokens of shape (batch, seq): a row is a sequence."""

    sequences: int

    def sum(self, x: Tensor) -> Tensor:
        """Sum of a (batch, seq) tensor over each sequence, (batch,), in :func:`accumulation_dtype`."""
        if x.dtype == torch.bool:
            return x.sum(-1, dtype=torch.int32).to(accumulation_dtype(x))
        return x.sum(-1, dtype=accumulation_dtype(x))

    def largest(self, x: Tensor) -> Tensor:
        """Largest element of each sequence, (batch,), in :func:`accumulation_dtype`; -inf for one without elements."""
        if x.shape[-1] == 0:
            return x.new_full(x.shape[:-1], -torch.inf, dtype=accumulation_dtype(x))
        return x.amax(-1).to(accumulation_dtype(x))

    def expand(self, y: Tensor) -> Tensor:
        """A (batch,) tensor as one that broadcasts over the tokens, (batch, 1)."""
        return y.unsqueeze(-1)

    def place(self, chosen: Tensor) -> Tensor:
        """Of each chosen token, how many before it in its sequence are chosen; bool to int64, (batch, seq)."""
        return chosen.cumsum(-1) - 1

    def admit(self, x: Tensor) -> Tensor:
        """A (batch, seq) tensor as it is: rows cannot be at odds with their tokens."""
        return x


class PackedLayout(NamedTuple):
    """Tokens of shape (tokens,): sequences end to end, as flash-attention's ``cu_seqlens`` marks them."""

    sequences: int
    sequence_of_token: Tensor
    """(tokens,) int64 in [0, sequences): the sequence that each token belongs to."""
    faithful: Tensor
    """() bool: ``cu_seqlens`` starts with 0, never falls and ends with the token count."""

    def sum(self, x: Tensor) -> Tensor:
        """Sum of a (tokens,) tensor over each sequence, (sequences,); NaN if ``cu_seqlens`` does not fit."""
        x = x.to(accumulation_dtype(x))
        return self.admit(x.new_zeros(self.sequences).index_add(0, self.sequence_of_token, x))

    def largest(self, x: Tensor) -> Tensor:
        """Largest element of each sequence, (sequences,); -inf for one without elements, NaN as for :meth:`sum`."""
        x = x.to(accumulation_dtype(x))
        none = x.new_full((self.sequences,), -torch.inf)
        return self.admit(none.scatter_reduce(0, self.sequence_of_token, x, "amax"))

    def expand(self, y: Tensor) -> Tensor:
        """A (sequences,) tensor as (tokens,): each token gets the value of its sequence."""
        return y[self.sequence_of_token]

    def place(self, chosen: Tensor) -> Tensor:
        """Of each chosen token, how many before it in its sequence are chosen; bool to int64, (tokens,)."""
        zeros = torch.zeros(self.sequences, dtype=torch.int64, device=chosen.device)
        counts = zeros.index_add(0, self.sequence_of_token, chosen.to(torch.int64))
        return chosen.cumsum(0) - 1 - self.expand(counts.cumsum(0) - counts)

    def admit(self, x: Tensor) -> Tensor:
        """A floating-point tensor as it is, or NaN throughout if ``cu_seqlens`` does not fit the tokens."""
        # A boundary that does not fit is found on the device: reading it here would halt the GPU.
        return torch.where(self.faithful, x, torch.nan)


Layout = PaddedLayout | PackedLayout


def layout_of(tokens: Tensor, cu_seqlens: CuSeqlens | None = None) -> Layout:
    """The layout of a batch of tokens.

    Args:
        tokens: (batch, seq), or (tokens,) with ``cu_seqlens``.
        cu_seqlens: (sequences + 1,) int32 or int64, ``[0, n1, n1 + n2, ...]`` up to the number of tokens, as
            flash-attention's variable-length functions take it. Values that do not fit make every result NaN.

    Raises:
        ValueError: The number of dimensions does not fit, or ``cu_seqlens`` has a wrong shape or dtype.

    Example:
        >>> layout = layout_of(torch.ones(5), torch.tensor([0, 2, 5], dtype=torch.int32))
        >>> layout.sum(torch.arange(5.0))
        tensor([1., 9.], dtype=torch.float64)
    """
    if cu_seqlens is None:
        if tokens.ndim != 2:
            raise ValueError(
                f"got tokens of shape {tuple(tokens.shape)} without cu_seqlens; give (batch, seq), or (tokens,) with "
                "cu_seqlens=[0, n1, n1 + n2, ...]"
            )
        return PaddedLayout(tokens.shape[0])
    if tokens.ndim != 1:
        raise ValueError(
            f"got tokens of shape {tuple(tokens.shape)} with cu_seqlens; packed tokens are one-dimensional"
        )
    if not isinstance(cu_seqlens, Tensor):
        raise ValueError(f"cu_seqlens is a {type(cu_seqlens).__name__}; it must be a torch.Tensor in int32 or int64")
    if cu_seqlens.ndim != 1 or cu_seqlens.shape[0] < 1 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"cu_seqlens has shape {tuple(cu_seqlens.shape)} and dtype {cu_seqlens.dtype}; it must be "
            "(sequences + 1,) in int32 or int64"
        )
    return _packed_layout(tokens, cu_seqlens)


def _packed_layout(tokens: Tensor, cu_seqlens: Tensor) -> PackedLayout:
    sequences, count = cu_seqlens.shape[0] - 1, tokens.shape[0]
    if count and not sequences:
        raise ValueError(f"cu_seqlens has one boundary and there are {count} tokens; it must end with the token count")
    boundaries = cu_seqlens.to(tokens.device, torch.int64)
    positions = torch.arange(count, device=tokens.device)
    owner = torch.searchsorted(boundaries, positions, right=True) - 1
    faithful = (boundaries[0] == 0) & (boundaries[-1] == count) & (boundaries.diff() >= 0).all()
    return PackedLayout(sequences, owner.clamp(0, max(sequences - 1, 0)), faithful)


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which sums are kept: float64, or float32 on a device that has no float64."""
    return torch.float32 if x.device.type == "mps" else torch.float64
