"""A rollout as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_rollout_is.recipes.byte_tokens import PAD
from lightning_rollout_is.recipes.sampling import Group


class Responses(NamedTuple):
    """Prompts and responses, one row each, padded on the right.

    Causal attention never looks right, so that padding needs no attention mask. Column ``t`` of every tensor of width
    ``seq`` speaks of the token in column ``t + 1`` of ``token_ids``, as the logits do.
    """

    token_ids: Int[Tensor, "batch seq+1"]
    """Prompt, response, padding."""
    response_mask: Bool[Tensor, "batch seq"]
    """True where the token was sampled."""
    rollout_log_prob: Float[Tensor, "batch seq"]
    """The engine's log-prob of the sampled token, nats; 0 elsewhere."""
    rewards: Float[Tensor, " batch"]
    """Reward of the response."""
    group_ids: Int[Tensor, " batch"]
    """Number of the prompt that it answers."""


class Experience(NamedTuple):
    """A batch to train on: the responses, and what the trainer thought of them when they were sampled."""

    token_ids: Int[Tensor, "batch seq+1"]
    """Prompt, response, padding."""
    response_mask: Bool[Tensor, "batch seq"]
    """True where the token was sampled."""
    rollout_log_prob: Float[Tensor, "batch seq"]
    """Log-prob under the policy that sampled, the engine's."""
    old_log_prob: Float[Tensor, "batch seq"]
    """Log-prob under the training policy at rollout time."""
    advantages: Float[Tensor, " batch"]
    """How much better than its group the response is."""
    mean_reward: Float[Tensor, " batch"]
    """Mean over all that the rollout generated, the same in each row."""

    def rows(self, index: Int[Tensor, " rows"]) -> Experience:
        """The given sequences."""
        return Experience(*(tensor[index] for tensor in self))


def pad_groups(groups: Sequence[Group]) -> Responses:
    """Lay groups out as tensors.

    Example:
        >>> from lightning_rollout_is.engines import Completion
        >>> group = Group([2, 50], [Completion([49, 3], [-0.5, -0.1]), Completion([3], [-2.0])], [1.0, 0.0])
        >>> responses = pad_groups([group])
        >>> responses.token_ids
        tensor([[ 2, 50, 49,  3],
                [ 2, 50,  3,  0]])
        >>> responses.rollout_log_prob
        tensor([[ 0.0000, -0.5000, -0.1000],
                [ 0.0000, -2.0000,  0.0000]])
    """
    rows = [(group.prompt, completion) for group in groups for completion in group.completions]
    width = max(len(prompt) + len(completion.token_ids) for prompt, completion in rows)
    token_ids = torch.full((len(rows), width), PAD)
    response_mask = torch.zeros(len(rows), width - 1, dtype=torch.bool)
    rollout_log_prob = torch.zeros(len(rows), width - 1)
    for row, (prompt, completion) in enumerate(rows):
        start, end = len(prompt), len(prompt) + len(completion.token_ids)
        token_ids[row, :end] = torch.tensor(prompt + completion.token_ids)
        response_mask[row, start - 1 : end - 1] = True
        rollout_log_prob[row, start - 1 : end - 1] = torch.tensor(completion.log_probs)
    rewards = torch.tensor([reward for group in groups for reward in group.rewards])
    group_ids = torch.tensor([number for number, group in enumerate(groups) for _ in group.completions])
    return Responses(token_ids, response_mask, rollout_log_prob, rewards, group_ids)
