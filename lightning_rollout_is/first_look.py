"""A look at the first batches of a run, for input that is valid and almost certainly not meant."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

from lightning_rollout_is.functional.alignment import alignment
from lightning_rollout_is.types import CuSeqlens, TokenFloat, TokenMask

BATCHES = 4
"""Batches that are looked at. One may be too short to tell; a fault of the pipeline is in all of them."""
SHIFTED = (
    "rollout_log_prob fits old_log_prob much better when it is shifted by one token, so that every importance weight "
    "compares two different tokens; index t of old_log_prob, rollout_log_prob and response_mask is the same token"
)


class FirstLook:
    """Warns of doubtful log-probs, once each, without waiting for the device in the training step.

    Example:
        >>> look = FirstLook()
        >>> old = -torch.arange(40.0).remainder(7.0).unsqueeze(0)
        >>> look.at(old, old.roll(1, dims=1), torch.ones(1, 40))
        >>> look.unread()
        [tensor(True)]
    """

    def __init__(self) -> None:
        self._batches = 0
        self._unread: list[Tensor] = []

    def at(
        self,
        old_log_prob: TokenFloat,
        rollout_log_prob: TokenFloat,
        response_mask: TokenMask,
        cu_seqlens: CuSeqlens | None = None,
    ) -> None:
        """Look at a batch, if it is one of the first."""
        # A compiled step would be traced anew for each of them.
        if self._batches == BATCHES or torch.compiler.is_compiling():
            return
        if self._batches == 0:
            for remark in remarks(old_log_prob, rollout_log_prob):
                rank_zero_warn(remark, UserWarning)
        self._batches += 1
        self._unread.append(alignment(old_log_prob, rollout_log_prob, response_mask, cu_seqlens).shifted)

    def unread(self) -> list[Tensor]:
        """Of each batch since the last call, whether it is shifted, (): on its device, for whoever reads it there."""
        unread, self._unread = self._unread, []
        return unread


def remarks(old_log_prob: Tensor, rollout_log_prob: Tensor) -> list[str]:
    """What can be said of two tensors without their values.

    Args:
        old_log_prob: Log-prob under the training policy, any shape.
        rollout_log_prob: Log-prob under the rollout policy.

    Returns:
        What is doubtful, each with what to do; nothing where all is well.

    Example:
        >>> remarks(torch.zeros(1), torch.zeros(1, dtype=torch.bfloat16))[0][:72]
        'rollout_log_prob is torch.bfloat16, which rounds a log-prob of -10 by up'
    """
    found = []
    if old_log_prob is rollout_log_prob:
        found.append(
            "old_log_prob and rollout_log_prob are the same tensor, so that every weight is 1 and every mismatch 0; "
            "give the log-probs of the engine that sampled as rollout_log_prob"
        )
    for name, tensor in (("old_log_prob", old_log_prob), ("rollout_log_prob", rollout_log_prob)):
        if tensor.element_size() < 4:
            found.append(
                f"{name} is {tensor.dtype}, which rounds a log-prob of -10 by up to {_half_step(tensor):.2g}: part of "
                "the mismatch is made here; give it as float32 (token_log_probs does, from logits of any dtype)"
            )
    return found


def _half_step(tensor: Tensor) -> float:
    """Half the distance of two neighbours between 8 and 16 nats."""
    return 8.0 * torch.finfo(tensor.dtype).eps / 2.0
