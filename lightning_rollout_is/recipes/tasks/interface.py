"""What a task is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch


@dataclass(frozen=True)
class TaskItem:
    """One question.

    Args:
        prompt: What the policy reads.
        answer: A right answer, as the policy would write it.
        details: Whatever else the task needs to score a response.
    """

    prompt: str
    answer: str
    details: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Task(Protocol):
    """Makes questions and scores responses."""

    def sample(self, n: int, generator: torch.Generator) -> list[TaskItem]:
        """Draw questions.

        Args:
            n: Number of questions.
            generator: The only source of chance, so that a seed fixes the questions.
        """
        ...

    def score(self, item: TaskItem, response: str) -> float:
        """Reward of a response, in [0, 1]."""
        ...
