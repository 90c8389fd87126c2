"""`token_log_probs`, forward and backward, against `log_softmax` in float32 and `gather`: time, peak memory, error.

Memory is beyond the logits themselves, the gradient included. The error is against float64 on the same logits; that of
a bfloat16 gradient is what goes beyond its own rounding.
"""

from timing import Row, interleaved, median

# isort: split
from typing import NamedTuple

import memory
import torch
from torch import Tensor

from lightning_rollout_is import token_log_probs

CASES = [
    (shape, dtype) for shape in ((4096, 32 * 1024), (1024, 128 * 1024)) for dtype in (torch.float32, torch.bfloat16)
]
ROUNDS = 5
REASON = "0.14 s of ours go into touching the gradient, 0.5 GB of new memory, for the first time"
TIME, PEAK, ERROR = 0.6, 1.3, 1e-5


class Measured(NamedTuple):
    seconds: dict[str, list[float]]
    peaks: dict[str, float]
    """Times the size of the logits; NaN where it cannot be measured."""
    errors: tuple[float, float]
    """Largest of the values, in nats, and of the gradient."""


def plain(logits: Tensor, token_ids: Tensor) -> Tensor:
    return logits.float().log_softmax(-1).gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)


def measure(shape: tuple[int, int], dtype: torch.dtype) -> Measured:
    torch.manual_seed(0)
    logits = torch.randn(shape).mul_(4).to(dtype).requires_grad_()
    token_ids, coming = torch.randint(shape[1], shape[:1]), torch.rand(shape[0]) * 2 - 1

    def gradient_of(function):
        return lambda: torch.autograd.grad(function(logits, token_ids), logits, coming)

    functions = {"plain": gradient_of(plain), "ours": gradient_of(token_log_probs)}
    seconds = interleaved(functions, ROUNDS, warmup=1)
    size = logits.numel() * logits.element_size()
    peaks = {name: _peak(function) / size for name, function in functions.items()}
    return Measured(seconds, peaks, _errors(logits, token_ids, coming))


def _peak(function) -> float:
    return memory.peak_extra_bytes(function)


def _errors(logits: Tensor, token_ids: Tensor, coming: Tensor) -> tuple[float, float]:
    values = token_log_probs(logits, token_ids)
    (gradient,) = torch.autograd.grad(values, logits, coming)
    parts = zip(*(x.detach().split(64) for x in (logits, token_ids, coming, values, gradient)), strict=True)
    errors = torch.tensor([_errors_of_rows(*part) for part in parts])
    return tuple(errors.amax(0).tolist())


def _errors_of_rows(
    logits: Tensor, token_ids: Tensor, coming: Tensor, values: Tensor, gradient: Tensor
) -> tuple[float, float]:
    exact = logits.double().log_softmax(-1)
    rows = torch.arange(len(logits))
    error = (values - exact[rows, token_ids]).abs().max()
    slope = -exact.exp_() * coming.double().unsqueeze(1)
    slope[rows, token_ids] += coming
    rounding = torch.finfo(logits.dtype).eps / 2 if logits.dtype.itemsize == 2 else 0.0
    return error.item(), ((gradient - slope).abs() - rounding * slope.abs()).clamp(min=0.0).max().item()


def rows() -> list[Row]:
    return [row for case in CASES for row in _rows_of(*case, measure(*case))]


def _rows_of(shape: tuple[int, int], dtype: torch.dtype, found: Measured) -> list[Row]:
    name = f"token_log_probs {shape}, {str(dtype).removeprefix('torch.')}"
    plain_ms, ours_ms = (median(found.seconds[which]) * 1e3 for which in ("plain", "ours"))
    ratio, peak, error = ours_ms / plain_ms, found.peaks["ours"], max(found.errors)
    short = "" if ratio <= TIME else f"{REASON}; "
    times = f"{short}{ours_ms:.0f} against {plain_ms:.0f} ms, forward and backward, {torch.get_num_threads()} threads"
    of_plain = f"bytes allocated at one time, gradient included; log_softmax and gather: {found.peaks['plain']:.2f}x"
    kinds = f"values {found.errors[0]:.1e} nats, gradient {found.errors[1]:.1e}"
    return [
        Row(f"{name}: times log_softmax and gather", f"{ratio:.2f}x", f"<= {TIME:g}x", ratio <= TIME, times),
        Row(f"{name}: peak memory in sizes of the logits", f"{peak:.2f}x", f"<= {PEAK:g}x", peak <= PEAK, of_plain),
        Row(f"{name}: error against float64", f"{error:.1e}", f"<= {ERROR:.0e}", error <= ERROR, kinds),
    ]


def main():
    for row in rows():
        print(*row, sep=" | ")


if __name__ == "__main__":
    main()
