"""REINFORCE: the score function estimator, per token."""

from __future__ import annotations

from lightning_rollout_is.functional.layout import layout_of
from lightning_rollout_is.losses.per_token import advantage_per_token, loss_dtype, require_token_shape
from lightning_rollout_is.types import CuSeqlens, SequenceFloat, TokenFloat, TokenMask


def reinforce_loss(
    log_prob: TokenFloat,
    advantages: TokenFloat | SequenceFloat,
    response_mask: TokenMask,
    *,
    cu_seqlens: CuSeqlens | None = None,
) -> TokenFloat:
    r"""Policy loss of each token, :math:`-A_t \log \pi_\theta(a_t)`.

    Its gradient is that of the expected return where the tokens were sampled from the policy itself; multiply the
    importance weight where they were not.

    Args:
        log_prob: Of each token under the current policy, nats, (batch, seq) or (tokens,), any float dtype.
        advantages: (sequences,) or one a token; taken without gradient.
        response_mask: 1 on tokens that the policy generated, 0 elsewhere; same shape as ``log_prob``.
        cu_seqlens: (sequences + 1,) boundaries of packed sequences.

    Returns:
        Of the shape of ``log_prob``, in float32 (float64 for float64), 0 outside the mask, whatever was there.

    Raises:
        ValueError: Shapes do not fit.

    Source:
        Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning".

    Example:
        >>> import torch
        >>> log_prob, mask = torch.tensor([[-0.5, -1.0, float("nan")]]), torch.tensor([[1, 1, 0]])
        >>> reinforce_loss(log_prob, torch.tensor([2.0]), mask)
        tensor([[1., 2., 0.]])
    """
    require_token_shape(response_mask, log_prob=log_prob)
    advantage = advantage_per_token(advantages, response_mask, layout_of(response_mask, cu_seqlens))
    loss = -advantage.to(loss_dtype(log_prob)) * log_prob
    return loss.where(response_mask != 0, 0.0)
