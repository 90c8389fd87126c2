"""Plain text with solved examples: what a small model that was not trained on the task can follow."""

from __future__ import annotations

import re

import torch

from lightning_rollout_is.recipes.tasks.interface import Task, TaskItem


class FewShot:
    """Puts solved examples before each question of a task, one a line, the same ones before all.

    The response is cut to what matches first in its first line, and scored by the task itself.

    Args:
        task: Where questions and scores come from.
        shots: Solved examples.
        lead_in: Words at the beginning of each question that are left out.
        answer: Regular expression of an answer.
        exact: Count only a full score: some tasks give part of it to an answer that merely contains the right one.
        seed: Seed of the examples.

    Raises:
        ValueError: ``shots`` is under 1, or ``answer`` is no regular expression.

    Example:
        >>> from lightning_rollout_is.recipes.tasks import SortDigits
        >>> task = FewShot(SortDigits(shortest=3, longest=3), shots=2, answer="[0-9]+")
        >>> item = task.sample(1, torch.Generator().manual_seed(1))[0]
        >>> print(item.prompt)
        303> 033
        973> 379
        948>
        >>> task.score(item, " 489 or 498"), task.score(item, "no idea")
        (1.0, 0.0)
    """

    def __init__(
        self,
        task: Task,
        shots: int = 4,
        lead_in: str = "",
        answer: str = "-?[0-9]+",
        exact: bool = False,
        seed: int = 0,
    ) -> None:
        if shots < 1:
            raise ValueError(f"shots = {shots} is not allowed; allowed: a whole number from 1 up")
        try:
            self._answer = re.compile(answer)
        except re.error as error:
            raise ValueError(f"answer = {answer!r} is no regular expression: {error}") from error
        self.task = task
        self.lead_in = lead_in
        self.exact = exact
        solved = task.sample(shots, torch.Generator().manual_seed(seed))
        self._examples = "".join(f"{self._question(item)} {item.answer}\n" for item in solved)

    def sample(self, n: int, generator: torch.Generator) -> list[TaskItem]:
        """Draw questions, with the examples before them."""
        return [
            TaskItem(prompt=self._examples + self._question(item), answer=item.answer, details={"item": item})
            for item in self.task.sample(n, generator)
        ]

    def score(self, item: TaskItem, response: str) -> float:
        """The task's score of the first answer in the first line; 0 if there is none."""
        first_line = response.split("\n", 1)[0]
        found = self._answer.search(first_line)
        score = self.task.score(item.details["item"], found.group()) if found else 0.0
        return float(score == 1.0) if self.exact else score

    def _question(self, item: TaskItem) -> str:
        return item.prompt.strip().removeprefix(self.lead_in)
