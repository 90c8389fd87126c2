"""The tasks of the package ``reasoning-gym``: more than a hundred generators with scorers."""

from __future__ import annotations

from typing import Any

import torch

from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.recipes.tasks.interface import TaskItem

_SEEDS = 2**31


class ReasoningGymTask:
    """Any task of ``reasoning-gym`` behind this package's two methods.

    Args:
        name: Name of the task there, such as ``"chain_sum"``.
        **settings: Settings of that task, such as ``min_terms=2``.

    Raises:
        ImportError: reasoning-gym is not installed.
    """

    def __init__(self, name: str, **settings: Any) -> None:
        self._gym = require("reasoning_gym", extra="reasoning-gym")
        self.name = name
        self.settings = settings
        self._scorer = self._dataset(size=1, seed=0)

    def sample(self, n: int, generator: torch.Generator) -> list[TaskItem]:
        """Draw questions from a dataset with a fresh seed."""
        seed = int(torch.randint(_SEEDS, (), generator=generator))
        return [
            TaskItem(prompt=entry["question"] + "\n", answer=str(entry["answer"]), details=entry)
            for entry in self._dataset(size=n, seed=seed)
        ]

    def score(self, item: TaskItem, response: str) -> float:
        """The task's own score, which may be between 0 and 1."""
        return float(self._scorer.score_answer(answer=response.strip(), entry=item.details))

    def _dataset(self, size: int, seed: int) -> Any:
        return self._gym.create_dataset(self.name, size=size, seed=seed, **self.settings)
