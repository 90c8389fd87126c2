"""Verifiable tasks: what the policy is asked, and what its answer is worth."""

from lightning_rollout_is.recipes.tasks.few_shot import FewShot
from lightning_rollout_is.recipes.tasks.interface import Task, TaskItem
from lightning_rollout_is.recipes.tasks.reasoning_gym import ReasoningGymTask
from lightning_rollout_is.recipes.tasks.sorting import SortDigits

__all__ = ["FewShot", "ReasoningGymTask", "SortDigits", "Task", "TaskItem"]
