"""The three tensors at the door: checked, upcast, subtracted; 0 outside the valid tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.types import TokenBool, TokenFloat, TokenMask

MISSING_AT_MOST = -9984.0
"""Inference servers write -9999 where they have no log-prob, and bfloat16 makes this of it."""


class LogRatio(NamedTuple):
    """Per-token log ratio and what it is made of. Log-probs are 0 and flags False where a token is not valid."""

    log_ratio: TokenFloat
    """Training minus rollout log-prob, nats."""
    old_log_prob: TokenFloat
    rollout_log_prob: TokenFloat
    inside: TokenBool
    """Inside the mask."""
    valid: TokenBool
    """Inside the mask and not missing a usable log-prob."""
    malformed: TokenBool | None
    """Where the mask is neither 0 nor 1; ``None`` for a bool mask, which cannot be."""


def compute_log_ratio(old_log_prob: TokenFloat, rollout_log_prob: TokenFloat, response_mask: TokenMask) -> LogRatio:
    r"""Log ratio of the training to the rollout policy, for each token.

    .. math:: \ell_t = \log \pi_\text{train}(a_t \mid s_t) - \log \pi_\text{rollout}(a_t \mid s_t)

    Index ``t`` of all three tensors is the same token. A token inside the mask is *missing* if its rollout log-prob is
    not finite or at most -9984 (a server's -9999 in bfloat16), or its training log-prob is NaN or +inf; it is in no
    sequence and no statistic.
    A training log-prob of -inf is a ratio of 0.

    Args:
        old_log_prob: Log-prob under the training policy at rollout time, nats, any float dtype.
        rollout_log_prob: Log-prob of the same token under the rollout policy, same shape.
        response_mask: 1 on tokens that the policy generated, 0 elsewhere; bool, integer or float, same shape.

    Returns:
        :class:`LogRatio` in float32, or float64 if either log-prob has it. Detached from the inputs' graphs.

    Raises:
        ValueError: Shapes differ, a log-prob is not floating point, or the mask is complex.

    Example:
        >>> old, rollout = torch.tensor([[-1.0, -3.0]]), torch.tensor([[-1.5, float("nan")]])
        >>> compute_log_ratio(old, rollout, torch.ones(1, 2)).log_ratio
        tensor([[0.5000, 0.0000]])
    """
    require_like_shapes(old_log_prob, rollout_log_prob, response_mask)
    dtype = compute_dtype(old_log_prob, rollout_log_prob)
    old = old_log_prob.detach().to(dtype)
    rollout = rollout_log_prob.detach().to(old.device, dtype)
    mask = response_mask.detach().to(old.device)
    is_bool = mask.dtype == torch.bool
    inside = mask if is_bool else mask != 0
    valid = inside & (rollout > MISSING_AT_MOST) & (rollout < torch.inf) & (old < torch.inf)
    old, rollout = old.where(valid, 0.0), rollout.where(valid, 0.0)
    return LogRatio(old - rollout, old, rollout, inside, valid, None if is_bool else inside & (mask != 1))


def compute_dtype(old_log_prob: Tensor, rollout_log_prob: Tensor) -> torch.dtype:
    """Float32, or float64 if either log-prob has it."""
    return torch.float64 if torch.float64 in (old_log_prob.dtype, rollout_log_prob.dtype) else torch.float32


def require_like_shapes(old_log_prob: Tensor, rollout_log_prob: Tensor, response_mask: Tensor) -> None:
    """Refuse what cannot be the log-probs and the mask of one batch.

    Raises:
        ValueError: Something is no tensor, shapes differ, a log-prob is not floating point, or the mask is complex.
    """
    named = {"old_log_prob": old_log_prob, "rollout_log_prob": rollout_log_prob, "response_mask": response_mask}
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
        if name != "response_mask" and not tensor.is_floating_point():
            raise ValueError(f"{name} has dtype {tensor.dtype}; log-probs are floating point")
    if response_mask.is_complex():
        raise ValueError(
            f"response_mask has dtype {response_mask.dtype}; it is 0 or 1 in a bool, integer or floating dtype"
        )
    if not old_log_prob.shape == rollout_log_prob.shape == response_mask.shape:
        raise ValueError(
            f"old_log_prob {tuple(old_log_prob.shape)}, rollout_log_prob {tuple(rollout_log_prob.shape)} and "
            f"response_mask {tuple(response_mask.shape)} must have one shape: (batch, seq), or (tokens,) with "
            "cu_seqlens"
        )
