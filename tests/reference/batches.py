"""Ragged batches of lists, and the tensors that hold them: every layout of the same sequences."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tests.reference.oracle import Rows

LAYOUTS = ("right", "left", "packed")
"""Padding after the tokens, padding before them, no padding. Holes are masked tokens inside a row, in any layout."""


class Batch(NamedTuple):
    """Ragged sequences; ``mask`` may hold zeros anywhere, and a sequence may be empty."""

    old: Rows
    rollout: Rows
    mask: Rows


class Tensors(NamedTuple):
    """One batch as the library takes it."""

    old: Tensor
    rollout: Tensor
    mask: Tensor
    cu_seqlens: Tensor | None

    @property
    def layout(self) -> dict[str, Tensor | None]:
        return {"cu_seqlens": self.cu_seqlens}


def batch_of_log_ratios(log_ratios: Rows, mask: Rows | None = None, rollout: float = -1.0) -> Batch:
    return Batch(
        old=[[rollout + value for value in row] for row in log_ratios],
        rollout=[[rollout] * len(row) for row in log_ratios],
        mask=[[1.0] * len(row) for row in log_ratios] if mask is None else mask,
    )


def batch_of_ratios(ratios: Rows) -> Batch:
    return batch_of_log_ratios([[math.log(value) for value in row] for row in ratios], rollout=0.0)


def lay_out(
    batch: Batch,
    layout: str = "right",
    old_dtype: torch.dtype = torch.float64,
    rollout_dtype: torch.dtype | None = None,
    mask_dtype: torch.dtype = torch.int64,
    padding: float = 0.0,
    width: int | None = None,
) -> Tensors:
    """Write a ragged batch into tensors, with ``padding`` in both log-probs of every position that no row uses."""
    cu_seqlens = None
    if layout == "packed":
        ends = torch.tensor([len(row) for row in batch.mask]).cumsum(0)
        cu_seqlens = torch.nn.functional.pad(ends, (1, 0)).to(torch.int32)
    return Tensors(
        old=write_rows(batch.old, layout, padding, width).to(old_dtype),
        rollout=write_rows(batch.rollout, layout, padding, width).to(rollout_dtype or old_dtype),
        mask=write_rows(batch.mask, layout, 0.0, width).to(mask_dtype),
        cu_seqlens=cu_seqlens,
    )


def write_rows(rows: Rows, layout: str, padding: float, width: int | None = None) -> Tensor:
    if layout == "packed":
        return torch.tensor([value for row in rows for value in row], dtype=torch.float64)
    width = max(len(row) for row in rows) if width is None else width
    filled = [(row, [padding] * (width - len(row))) for row in rows]
    padded = [row + fill if layout == "right" else fill + row for row, fill in filled]
    return torch.tensor(padded, dtype=torch.float64).reshape(len(rows), width)


def read_rows(tensor: Tensor, batch: Batch, layout: str) -> Rows:
    """Read back what ``lay_out`` wrote, or a result of the same shape, as float64."""
    lengths = [len(row) for row in batch.mask]
    if layout == "packed":
        return [piece.tolist() for piece in tensor.double().split(lengths)]
    width = tensor.shape[1]
    starts = [0 if layout == "right" else width - length for length in lengths]
    rows = zip(tensor.double(), starts, lengths, strict=True)
    return [row[start : start + length].tolist() for row, start, length in rows]


def as_seen(batch: Batch, tensors: Tensors, layout: str) -> Batch:
    """The batch after rounding to the tensors' dtypes: what an exact library would compute from."""
    return Batch(read_rows(tensors.old, batch, layout), read_rows(tensors.rollout, batch, layout), batch.mask)
