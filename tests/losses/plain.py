"""The losses as loops over Python floats, one token at a time, and batches to compare on."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Rows = list[list[float]]


def ppo(log_ratio: float, advantage: float, low: float = 0.2, high: float = 0.2, c: float = math.inf) -> float:
    ratio = math.exp(min(max(log_ratio, -20.0), 20.0))
    loss = max(-advantage * ratio, -advantage * min(max(ratio, 1 - low), 1 + high))
    return min(loss, -advantage * c) if advantage < 0 else loss


def aggregate(rows: Rows, mode: str) -> float:
    """Of the losses of the response tokens alone, a list a sequence."""
    rows = [row for row in rows if row]
    if mode == "token-mean":
        tokens = [loss for row in rows for loss in row]
        return sum(tokens) / len(tokens)
    if mode == "seq-mean-token-sum":
        return sum(sum(row) for row in rows) / len(rows)
    return sum(sum(row) / len(row) for row in rows) / len(rows)


def inside(values: Tensor, mask: Tensor) -> Rows:
    pairs = zip(values.tolist(), mask.tolist(), strict=True)
    return [[value for value, kept in zip(*pair, strict=True) if kept] for pair in pairs]


def ragged_mask() -> Tensor:
    """(5, 6): a full row, padding right, padding left, holes, and a row without a response token."""
    rows = [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]]
    return torch.tensor(rows)


def random_like(mask: Tensor, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(mask.shape, generator=generator, dtype=torch.float64) * scale


def packed(values: Tensor, drop: Tensor) -> Tensor:
    """The rows end to end, without the positions where ``drop``."""
    return values[~drop]


def boundaries(drop: Tensor) -> Tensor:
    return torch.nn.functional.pad((~drop).sum(1).cumsum(0), (1, 0)).to(torch.int32)


def gradient(fn: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    leaf = at.detach().clone().requires_grad_()
    (grad,) = torch.autograd.grad(fn(leaf), leaf)
    return grad
