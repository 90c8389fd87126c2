"""What may be meant, and seldom is: remarks on the log-probs that a module gives, before they become numbers."""

from __future__ import annotations

import torch
from torch import Tensor

SHIFTED = (
    "rollout_log_prob fits old_log_prob much better when it is shifted by one token, so every importance weight "
    "compares two different tokens; index t of old_log_prob, rollout_log_prob and response_mask must be the same token"
)


def input_remarks(old_log_prob: Tensor, rollout_log_prob: Tensor) -> list[str]:
    """Remarks that need no value of the tensors, and so no wait for the device.

    Args:
        old_log_prob: Log-prob under the training policy, any shape.
        rollout_log_prob: Log-prob under the rollout policy.

    Returns:
        What is doubtful, each with what to do; nothing where all is well.

    Example:
        >>> log_prob = torch.zeros(1, 2)
        >>> input_remarks(log_prob, log_prob.clone())
        []
        >>> input_remarks(log_prob, log_prob)[0][:61]
        'old_log_prob and rollout_log_prob are the same tensor, so tha'
    """
    remarks = []
    if old_log_prob is rollout_log_prob:
        remarks.append(
            "old_log_prob and rollout_log_prob are the same tensor, so that every weight is 1 and every mismatch 0; "
            "give the log-probs of the engine that sampled as rollout_log_prob"
        )
    for name, tensor in (("old_log_prob", old_log_prob), ("rollout_log_prob", rollout_log_prob)):
        if tensor.element_size() < 4:
            remarks.append(
                f"{name} is {tensor.dtype}, which rounds a log-prob of -10 by up to {_half_step(tensor):.2g}: part of "
                "the mismatch is made here; give it as float32 (token_log_probs does, from logits of any dtype)"
            )
    return remarks


def _half_step(tensor: Tensor) -> float:
    """Half the distance of two neighbours between 8 and 16 nats."""
    return 8.0 * torch.finfo(tensor.dtype).eps / 2.0
