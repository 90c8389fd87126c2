"""A training dataloader that generates its data with the policy that is being trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from lightning_rollout_is.recipes.experience import Experience


class RolloutLoader:
    """Mini-batches of fresh rollouts.

    A rollout is generated when its first mini-batch is asked for, which is after the optimizer step on the one before.
    The loader has a length because Lightning fetches one batch ahead from a loader without.

    Args:
        rollout: Generates the sequences of one rollout, ``sequences`` of them.
        sequences: Sequences a rollout.
        mini_batch: Sequences a mini-batch; the last one of an epoch may be smaller.
        ppo_epochs: Passes over each rollout, in a new order each.
        rollouts: Rollouts in one pass over the loader, which is Lightning's epoch.
        generator: Source of the order.

    Example:
        >>> loader = RolloutLoader(lambda: ..., sequences=10, mini_batch=4, ppo_epochs=2, rollouts=5)
        >>> len(loader)
        30
    """

    def __init__(
        self,
        rollout: Callable[[], Experience],
        *,
        sequences: int,
        mini_batch: int,
        ppo_epochs: int = 1,
        rollouts: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        self.rollout = rollout
        self.sequences = sequences
        self.mini_batch = mini_batch
        self.ppo_epochs = ppo_epochs
        self.rollouts = rollouts
        self.generator = generator

    @property
    def batches_per_rollout(self) -> int:
        """Mini-batches that one rollout gives."""
        return self.ppo_epochs * math.ceil(self.sequences / self.mini_batch)

    def __len__(self) -> int:
        return self.rollouts * self.batches_per_rollout

    def __iter__(self) -> Iterator[Experience]:
        for _ in range(self.rollouts):
            experience = self.rollout()
            for _ in range(self.ppo_epochs):
                order = torch.randperm(self.sequences, generator=self.generator)
                yield from map(experience.rows, torch.split(order, self.mini_batch))
