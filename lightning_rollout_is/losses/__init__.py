"""Policy losses per token, their aggregation, and group-relative advantages.

A policy loss returns one value a token, so that the importance weight multiplies after the clip; ``aggregate_loss``
makes the scalar, and its denominator counts ``response_mask``: a masked or vetoed token stays in it.
"""

from lightning_rollout_is.losses.aggregation import AGGREGATION_MODES, aggregate_loss
from lightning_rollout_is.losses.grpo import grpo_advantages
from lightning_rollout_is.losses.ppo_clip import ClippedLoss, ppo_clip_loss
from lightning_rollout_is.losses.reinforce import reinforce_loss

__all__ = [
    "AGGREGATION_MODES",
    "ClippedLoss",
    "aggregate_loss",
    "grpo_advantages",
    "ppo_clip_loss",
    "reinforce_loss",
]
