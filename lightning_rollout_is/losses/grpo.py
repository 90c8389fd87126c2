"""Group-relative advantages: a reward against the other responses to the same prompt."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from lightning_rollout_is.functional.layout import accumulation_dtype
from lightning_rollout_is.types import SequenceFloat


def grpo_advantages(
    rewards: SequenceFloat, group_ids: Int[Tensor, " sequences"], *, norm_by_std: bool = True, eps: float = 1e-6
) -> SequenceFloat:
    r"""Advantage of each sequence within its group.

    .. math:: A_i = \frac{r_i - \bar r_{g(i)}}{s_{g(i)} + \epsilon}, \qquad
              s_g^2 = \frac{1}{n_g - 1} \sum_{j \in g} (r_j - \bar r_g)^2

    A group of equal rewards gets 0. So does a group of one: nothing tells whether its reward is good. (verl lets the
    bare reward pass there, which pushes every lone response up or down by the scale of the reward function.)

    Args:
        rewards: (sequences,) float.
        group_ids: (sequences,) integer in [0, sequences), the same for all responses to a prompt; in any order.
        norm_by_std: Divide by the group's standard deviation. ``False`` is Dr. GRPO, which does not: it would weigh
            prompts that are nearly always or nearly never solved more.
        eps: Added to the standard deviation, in units of the reward.

    Returns:
        (sequences,) in the dtype of ``rewards``, mean 0 in each group, without gradient.

    Raises:
        ValueError: Shapes differ, the ids are not integer, or ``eps`` is not positive.

    Source:
        Shao et al. 2024, "DeepSeekMath", section 4.1; Liu et al. 2025, "Understanding R1-Zero-like training", section
        3.2 (Dr. GRPO).

    Example:
        >>> grpo_advantages(torch.tensor([1.0, 0.0, 0.0, 5.0]), torch.tensor([0, 0, 0, 1]))
        tensor([ 1.1547, -0.5773, -0.5773,  0.0000])
    """
    _require_groups(rewards, group_ids, eps)
    group_ids = group_ids.long()
    reward = rewards.detach().to(accumulation_dtype(rewards))
    size = _group_sum(torch.ones_like(reward), group_ids)
    centred = reward - (_group_sum(reward, group_ids) / size.clamp(min=1.0))[group_ids]
    if norm_by_std:
        variance = _group_sum(centred.square(), group_ids) / (size - 1.0).clamp(min=1.0)
        centred = centred / (variance.sqrt() + eps)[group_ids]
    return centred.to(rewards.dtype)


def _group_sum(x: Tensor, group_ids: Tensor) -> Tensor:
    """(sequences,) sums by id. There are at most as many groups as sequences, so the size is known without reading."""
    return torch.zeros_like(x).index_add(0, group_ids, x)


def _require_groups(rewards: Tensor, group_ids: Tensor, eps: float) -> None:
    if rewards.ndim != 1 or not rewards.is_floating_point() or rewards.shape != group_ids.shape:
        raise ValueError(
            f"rewards are {rewards.dtype} {tuple(rewards.shape)} and group_ids {tuple(group_ids.shape)}; give floating "
            "point rewards (sequences,) and group_ids (sequences,)"
        )
    if group_ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"group_ids have dtype {group_ids.dtype}; they must be torch.int32 or torch.int64")
    if not eps > 0:
        raise ValueError(f"eps = {eps!r} is not allowed; it must be positive, or a group of equal rewards gives 0 / 0")
