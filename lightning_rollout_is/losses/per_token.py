"""What every policy loss starts with: tensors of one shape, and an advantage for each token."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_rollout_is.functional.layout import Layout
from lightning_rollout_is.types import TokenFloat


def require_token_shape(response_mask: Tensor, **token_tensors: Tensor) -> None:
    """Check that each tensor is floating point and has the shape of the mask, so that nothing broadcasts.

    Args:
        response_mask: (batch, seq), or (tokens,) packed.
        **token_tensors: By the name that the error shall show.

    Raises:
        ValueError: A shape, a dtype or a device differs; names the tensor.

    Example:
        >>> require_token_shape(torch.ones(2, 3), log_prob=torch.ones(2, 1))
        Traceback (most recent call last):
        ValueError: log_prob is torch.float32 (2, 1); give floating point of the shape of response_mask, (2, 3)
    """
    for name, tensor in (("response_mask", response_mask), *token_tensors.items()):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
    for name, tensor in token_tensors.items():
        if tensor.device != response_mask.device:
            raise ValueError(
                f"{name} is on {tensor.device} and response_mask on {response_mask.device}; move one of them"
            )
        if not tensor.is_floating_point() or tensor.shape != response_mask.shape:
            raise ValueError(
                f"{name} is {tensor.dtype} {tuple(tensor.shape)}; give floating point of the shape of response_mask, "
                f"{tuple(response_mask.shape)}"
            )


def loss_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype of a loss: float32, or float64 if a tensor has it.

    Args:
        *tensors: Any floating point tensors.

    Example:
        >>> loss_dtype(torch.ones(1, dtype=torch.bfloat16))
        torch.float32
    """
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def advantage_per_token(advantages: Tensor, response_mask: Tensor, layout: Layout) -> TokenFloat:
    """The advantage of each token, without gradient, 0 outside the mask.

    Args:
        advantages: (sequences,), one for all tokens of a sequence, or one a token. (batch, 1) is refused: the same
            shape would mean something else for another batch.
        response_mask: (batch, seq), or (tokens,) packed; not 0 on response tokens.
        layout: How its tokens form sequences.

    Returns:
        Of the shape of ``response_mask``, in the dtype of ``advantages``.

    Raises:
        ValueError: Any other shape, or not floating point.

    Example:
        >>> from lightning_rollout_is.functional.layout import layout_of
        >>> mask = torch.tensor([[1, 1], [1, 0]])
        >>> advantage_per_token(torch.tensor([0.5, -2.0]), mask, layout_of(mask))
        tensor([[ 0.5000,  0.5000],
                [-2.0000,  0.0000]])
    """
    if not advantages.is_floating_point():
        raise ValueError(f"advantages have dtype {advantages.dtype}; they must be floating point")
    advantages = advantages.detach()
    if advantages.shape != response_mask.shape:
        if advantages.shape != (layout.sequences,):
            raise ValueError(
                f"advantages have shape {tuple(advantages.shape)}; allowed: ({layout.sequences},), one a sequence, or "
                f"{tuple(response_mask.shape)}, one a token"
            )
        advantages = layout.expand(advantages)
    return mark_malformed(torch.where(response_mask != 0, advantages, 0.0), response_mask)


def mark_malformed(x: Tensor, response_mask: Tensor) -> Tensor:
    """NaN where the mask is neither 0 nor 1: it must show, and reading it here would halt the GPU.

    Args:
        x: Floating point, of the shape of the mask.
        response_mask: Any dtype.

    Example:
        >>> mark_malformed(torch.ones(3), torch.tensor([1.0, 0.5, 0.0]))
        tensor([1., nan, 1.])
    """
    if response_mask.dtype == torch.bool:
        return x
    return x.where((response_mask == 0) | (response_mask == 1), torch.nan)
