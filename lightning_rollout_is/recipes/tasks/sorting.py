"""Sorting digits: easy to check, hard enough for a model with a million weights."""

from __future__ import annotations

import torch

from lightning_rollout_is.recipes.tasks.interface import TaskItem


class SortDigits:
    """Write the digits of a number in rising order.

    Args:
        shortest: Fewest digits.
        longest: Most digits.

    Raises:
        ValueError: Not 1 <= shortest <= longest.

    Example:
        >>> task = SortDigits(shortest=3, longest=3)
        >>> item = task.sample(1, torch.Generator().manual_seed(0))[0]
        >>> item.prompt, item.answer
        ('930>', '039')
        >>> task.score(item, "039"), task.score(item, "093")
        (1.0, 0.0)
    """

    def __init__(self, shortest: int = 5, longest: int = 8) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"shortest = {shortest} and longest = {longest}; allowed: 1 <= shortest <= longest")
        self.shortest = shortest
        self.longest = longest

    def sample(self, n: int, generator: torch.Generator) -> list[TaskItem]:
        """Draw numbers, each length equally often."""
        lengths = torch.randint(self.shortest, self.longest + 1, (n,), generator=generator).tolist()
        digits = torch.randint(10, (n, self.longest), generator=generator).tolist()
        return [_item(row[:length]) for row, length in zip(digits, lengths, strict=True)]

    def score(self, item: TaskItem, response: str) -> float:
        """1 for exactly the right digits, else 0."""
        return float(response == item.answer)


def _item(digits: list[int]) -> TaskItem:
    return TaskItem(prompt=f"{_text(digits)}>", answer=_text(sorted(digits)))


def _text(digits: list[int]) -> str:
    return "".join(map(str, digits))
