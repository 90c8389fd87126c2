"""PPO's clipped surrogate, with separate clips below and above and the dual clip, per token."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.functional.layout import layout_of
from lightning_rollout_is.losses.per_token import advantage_per_token, loss_dtype, require_token_shape
from lightning_rollout_is.types import CuSeqlens, SequenceFloat, TokenBool, TokenFloat, TokenMask

LOG_RATIO_LIMIT = 20.0
"""The log ratio is clamped to plus or minus this before ``exp``, which stays finite in float32 then."""


class ClippedLoss(NamedTuple):
    """The loss of each token, and where a clip decided it: there the token has no gradient."""

    token_loss: TokenFloat
    """float32 (float64 for float64), 0 outside the mask. The importance weight multiplies this."""
    clipped: TokenBool
    """The ratio has moved past the clip in the direction that the advantage asks for."""
    dual_clipped: TokenBool
    """The advantage is negative and the ratio above ``clip_ratio_c``; never together with ``clipped``."""


def ppo_clip_loss(
    log_prob: TokenFloat,
    old_log_prob: TokenFloat,
    advantages: TokenFloat | SequenceFloat,
    response_mask: TokenMask,
    *,
    clip_ratio_low: float = 0.2,
    clip_ratio_high: float = 0.2,
    clip_ratio_c: float | None = None,
    cu_seqlens: CuSeqlens | None = None,
) -> ClippedLoss:
    r"""Clipped policy loss of each token.

    With :math:`\rho_t = \exp(\log \pi_\theta(a_t) - \log \pi_\text{old}(a_t))`,

    .. math:: L_t = \max\bigl(-A_t \rho_t,\; -A_t \operatorname{clip}(\rho_t, 1 - \epsilon_\text{low},
              1 + \epsilon_\text{high})\bigr)

    and, with the dual clip, :math:`\min(L_t, -A_t c)` where :math:`A_t < 0`: without it a token that has become far
    more likely under the current policy has an unbounded loss.

    Args:
        log_prob: Of each token under the current policy, nats, (batch, seq) or (tokens,), any float dtype.
        old_log_prob: Under the training policy at rollout time, same shape; taken without gradient.
        advantages: (sequences,) or one a token; taken without gradient.
        response_mask: 1 on tokens that the policy generated, 0 elsewhere; same shape. Nothing outside it reaches the
            value or the gradient, NaN and inf included.
        clip_ratio_low: :math:`\epsilon_\text{low}` in [0, 1].
        clip_ratio_high: :math:`\epsilon_\text{high}`, at least 0; above ``clip_ratio_low`` it is DAPO's clip-higher.
        clip_ratio_c: :math:`c`, above 1 (3 is usual); ``None`` turns the dual clip off.
        cu_seqlens: (sequences + 1,) boundaries of packed sequences.

    Returns:
        :class:`ClippedLoss`, each field of the shape of ``log_prob``.

    Raises:
        ValueError: Shapes do not fit, or a clip ratio is outside its range.

    Source:
        Schulman et al. 2017, "Proximal policy optimization algorithms", eq. 7; Ye et al. 2020, "Mastering complex
        control in MOBA games", section 3.3 (dual clip); Yu et al. 2025, "DAPO", section 3.1 (clip-higher).

    Example:
        >>> ratio, mask = torch.tensor([[1.5, 1.1, 0.5]]), torch.ones(1, 3)
        >>> loss = ppo_clip_loss(ratio.log(), torch.zeros(1, 3), torch.ones(1), mask, clip_ratio_high=0.28)
        >>> loss.token_loss, loss.clipped
        (tensor([[-1.2800, -1.1000, -0.5000]]), tensor([[ True, False, False]]))
    """
    _require_clip_ratios(clip_ratio_low, clip_ratio_high, clip_ratio_c)
    require_token_shape(response_mask, log_prob=log_prob, old_log_prob=old_log_prob)
    ratio = _ratio(log_prob, old_log_prob, response_mask)
    advantage = advantage_per_token(advantages, response_mask, layout_of(response_mask, cu_seqlens)).to(ratio.dtype)
    unclipped = -advantage * ratio
    at_clip = -advantage * ratio.clamp(1.0 - clip_ratio_low, 1.0 + clip_ratio_high)
    loss = torch.maximum(unclipped, at_clip)
    ceiling = torch.where(advantage < 0, -advantage * (clip_ratio_c or math.inf), math.inf)
    return ClippedLoss(torch.minimum(loss, ceiling), at_clip > unclipped, loss > ceiling)


def _ratio(log_prob: Tensor, old_log_prob: Tensor, response_mask: Tensor) -> Tensor:
    dtype = loss_dtype(log_prob, old_log_prob)
    log_ratio = log_prob.to(dtype) - old_log_prob.detach().to(dtype)
    # Before exp: exp of garbage is inf, and the gradient of a discarded inf is 0 * inf.
    inside = log_ratio.where(response_mask != 0, 0.0)
    return inside.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def _require_clip_ratios(low: float, high: float, c: float | None) -> None:
    if not 0 <= low <= 1:
        raise ValueError(f"clip_ratio_low = {low!r} is not allowed; it must be in [0, 1]")
    if not 0 <= high < math.inf:
        raise ValueError(f"clip_ratio_high = {high!r} is not allowed; it must be finite and at least 0")
    if c is not None and not 1 < c < math.inf:
        raise ValueError(f"clip_ratio_c = {c!r} is not allowed; it must be finite and above 1, or None")
