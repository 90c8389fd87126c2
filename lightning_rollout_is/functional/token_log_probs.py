"""Log-prob of given tokens from logits, block by block: the log-probs of the whole vocabulary are never in memory."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_rollout_is.types import TokenFloat

# Elements that one kernel works on: few enough to stay in a CPU's cache from one kernel to the next, and enough that
# starting threads, or kernels on a GPU, costs little.
_BLOCK_PER_CPU_THREAD = 1 << 19
_BLOCK_ON_ACCELERATOR = 1 << 23
_SMALL_BLOCK = 1 << 20
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def token_log_probs(
    logits: Float[Tensor, "*tokens vocab"], token_ids: Int[Tensor, "*tokens"], temperature: float = 1.0
) -> TokenFloat:
    r"""Log-prob of each given token under ``softmax(logits / temperature)``.

    .. math:: \log \pi(a_t) = z_{t, a_t} / \tau - \log \sum_v \exp(z_{t, v} / \tau)

    Equal to ``log_softmax`` and ``gather``, in a fraction of the time and without its two extra tensors of the size of
    the logits: the backward pass writes the gradient, one tensor in the logits' dtype, and nothing else of that size.
    There is no second derivative.

    An id outside the vocabulary, such as -100 on padding, gives NaN. Take it out with ``torch.where`` or
    ``masked_fill``: a position whose incoming gradient is 0 passes on a gradient of exactly 0, whatever its id and
    logits are. To score a shifted sequence, shift and pad ``token_ids``; slicing the logits costs a copy on the way
    back.

    Args:
        logits: (..., vocab), unnormalised, any float dtype; half precision is computed in float32.
        token_ids: (...), integer, in [0, vocab).
        temperature: Positive; the one that the tokens were sampled with.

    Returns:
        (...) log-probs in nats, at most 0; float64 for float64 logits, float32 otherwise.

    Raises:
        ValueError: Shapes do not fit, ids are not integer, or the temperature is not positive and finite.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
        >>> token_log_probs(logits, torch.tensor([2, 1]))
        tensor([-1.3863, -1.0064])
        >>> token_log_probs(logits, torch.tensor([2, 1]), temperature=0.5)
        tensor([-1.3863, -0.8201])
    """
    if not logits.is_floating_point() or logits.shape[:-1] != token_ids.shape or logits.ndim == 0:
        raise ValueError(
            f"logits are {logits.dtype} {tuple(logits.shape)} and token_ids {tuple(token_ids.shape)}; give floating "
            "point logits (..., vocab) and token_ids (...) of the same leading shape"
        )
    if token_ids.dtype not in _INTEGERS:
        raise ValueError(f"token_ids has dtype {token_ids.dtype}; token ids are integers, such as torch.int64")
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature = {temperature!r} is not allowed; it must be positive and finite")
    log_prob: Tensor = _gathered_log_softmax(logits, token_ids, float(temperature))
    return log_prob


# An operator of its own, not an autograd.Function: torch.compile takes it as one node and does not unroll its loop.
@torch.library.custom_op("lightning_rollout_is::token_log_probs", mutates_args=())
def _gathered_log_softmax(logits: Tensor, token_ids: Tensor, temperature: float) -> Tensor:
    index, in_vocab = _column_of(token_ids, logits.shape[-1])
    log_prob = logits.new_empty((*index.shape,), dtype=_compute_dtype(logits))
    of_block = _by_passes if _on_cpu(logits) else _by_log_softmax
    scratch = _scratch(logits)
    for rows, block in _row_blocks(logits):
        log_prob[rows] = of_block(block, index[rows], temperature, scratch[:, : len(block)])
    return log_prob.masked_fill_(~in_vocab, torch.nan).view(token_ids.shape)


@torch.library.custom_op("lightning_rollout_is::token_log_probs_backward", mutates_args=())
def _gradient(grad: Tensor, logits: Tensor, token_ids: Tensor, log_prob: Tensor, temperature: float) -> Tensor:
    index, _ = _column_of(token_ids, logits.shape[-1])
    # A NaN that takes part in the loss shows in the gradient; one that does not leaves 0 there.
    factor = grad.masked_fill(log_prob.isnan() & (grad != 0), torch.nan).reshape(-1, 1) / -temperature
    grad_logits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    grad_rows = grad_logits.view(index.shape[0], logits.shape[-1])
    scaled, softmax = _scratch(logits)
    for rows, block in _row_blocks(logits):
        grad_block = grad_rows[rows]
        # In place where the dtypes agree: the block is in the cache, and its memory is touched once.
        out = grad_block if grad_block.dtype == softmax.dtype else softmax[: len(block)]
        torch.softmax(_scaled(block, temperature, scaled), -1, out=out)
        # What rounding in the softmax makes of 1, see below; and no NaN, which would outlast a factor of 0.
        total = out.sum(-1, keepdim=True).nan_to_num_(1.0)
        out.scatter_add_(1, index[rows], -total)
        out.nan_to_num_().mul_(factor[rows] / total)
        if out is not grad_block:
            grad_block.copy_(out)
    return grad_logits


@_gathered_log_softmax.register_fake
def _(logits: Tensor, token_ids: Tensor, temperature: float) -> Tensor:
    return logits.new_empty(token_ids.shape, dtype=_compute_dtype(logits))


@_gradient.register_fake
def _(grad: Tensor, logits: Tensor, token_ids: Tensor, log_prob: Tensor, temperature: float) -> Tensor:
    return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    logits, token_ids, ctx.temperature = inputs
    ctx.save_for_backward(logits, token_ids, output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return _gradient(grad, *ctx.saved_tensors, ctx.temperature), None, None


_gathered_log_softmax.register_autograd(_backward, setup_context=_save)


def _compute_dtype(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)


def _column_of(token_ids: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    ids = token_ids.reshape(-1, 1).long()
    in_vocab = (ids >= 0) & (ids < vocab)
    return ids.where(in_vocab, 0), in_vocab


def _by_passes(block: Tensor, index: Tensor, temperature: float, scratch: Tensor) -> Tensor:
    """Log-probs of one token a row, (rows, 1), by plain passes over the block.

    A CPU's softmax adds up a row in so few partial sums that it errs by 2e-5 at 128k columns; `sum` adds in pairs. The
    powers are of 2 for speed alone.
    """
    numbers = scratch[0]
    z = block if block.dtype == numbers.dtype else numbers.copy_(block)
    chosen, largest = z.gather(1, index), z.amax(-1, keepdim=True)
    torch.sub(z, largest, out=numbers).mul_(math.log2(math.e) / temperature).exp2_()
    return (chosen - largest) / temperature - numbers.sum(-1, keepdim=True).log()


def _by_log_softmax(block: Tensor, index: Tensor, temperature: float, scratch: Tensor) -> Tensor:
    """The same by one kernel, which a GPU has without that fault."""
    log_softmax = torch.log_softmax(_scaled(block, temperature, scratch[0]), -1, out=scratch[1])
    return log_softmax.gather(1, index)


def _scaled(block: Tensor, temperature: float, scratch: Tensor) -> Tensor:
    if temperature == 1.0 and block.dtype == scratch.dtype:
        return block
    scaled = scratch[: len(block)].copy_(block)
    return scaled if temperature == 1.0 else scaled.div_(temperature)


def _scratch(logits: Tensor) -> Tensor:
    """Two blocks in the compute dtype: memory that every block uses again costs no page faults but the first."""
    vocab = logits.shape[-1]
    rows = min(max(1, _block_size(logits) // max(1, vocab)), math.prod(logits.shape[:-1]))
    return logits.new_empty((2, rows, vocab), dtype=_compute_dtype(logits))


def _block_size(logits: Tensor) -> int:
    size = _BLOCK_PER_CPU_THREAD * torch.get_num_threads() if _on_cpu(logits) else _BLOCK_ON_ACCELERATOR
    # However many threads there are, two blocks in float32 stay under a quarter of the logits in bfloat16.
    return min(size, max(_SMALL_BLOCK, logits.numel() // 16))


def _on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _row_blocks(logits: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of rows, (rows, vocab), and where they are among all rows: views, or copies where they are strided."""
    start = 0
    for block in _split(logits if logits.ndim > 1 else logits.unsqueeze(0), _block_size(logits)):
        yield slice(start, start + block.shape[0]), block
        start += block.shape[0]


def _split(logits: Tensor, size: int) -> Iterator[Tensor]:
    entry = math.prod(logits.shape[1:])
    if logits.ndim > 2 and entry > size:
        for part in logits:
            yield from _split(part, size)
        return
    for part in torch.split(logits, max(1, size // max(1, entry))):
        yield part.reshape(math.prod(part.shape[:-1]), part.shape[-1])
