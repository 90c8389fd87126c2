"""From questions to scored responses: what the rollout engine does between two updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from lightning_rollout_is.engines.interface import Completion, RolloutEngine
from lightning_rollout_is.recipes import byte_tokens
from lightning_rollout_is.recipes.tasks.interface import Task, TaskItem
from lightning_rollout_is.recipes.tokenizer import Tokenizer


class Group(NamedTuple):
    """The responses to one prompt, which GRPO compares with each other."""

    prompt: list[int]
    """Token ids."""
    completions: list[Completion]
    """Responses."""
    rewards: list[float]
    """One a response, in [0, 1]."""

    @property
    def mixed(self) -> bool:
        """Whether the rewards differ: only then has the group a gradient.

        Example:
            >>> Group([2], [], [0.0, 1.0]).mixed, Group([2], [], [1.0, 1.0]).mixed
            (True, False)
        """
        return min(self.rewards) < max(self.rewards)


class Sample(NamedTuple):
    """What one rollout gave."""

    groups: list[Group]
    """``train_batch_size`` groups to train on."""
    mean_reward: float
    """Over every response that was generated, those of dropped groups included."""


class GroupSampler:
    """Draws questions, has the engine answer each ``n`` times, and scores the answers.

    With dynamic sampling (DAPO, Yu et al. 2025) a group whose responses all earn the same reward is dropped, and new
    questions are drawn until the batch is full. When the bound is reached, dropped groups fill the batch up: their
    advantages are 0, and every rank has the same number of sequences.

    Args:
        engine: What samples; its weights must be synced before :meth:`sample`.
        task: What asks and scores.
        n: Responses a prompt.
        train_batch_size: Prompts a rollout, on each rank.
        max_response_length: Most tokens of a response.
        temperature: Sampling temperature.
        filter_groups: ``enable`` turns dynamic sampling on; ``max_num_gen_batches`` bounds the batches that are
            generated for one rollout.
        tokenizer: Text to the policy's token ids and back; bytes by default.

    Raises:
        ValueError: A size is under 1, or dynamic sampling is not bounded.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        task: Task,
        *,
        n: int = 8,
        train_batch_size: int = 32,
        max_response_length: int = 16,
        temperature: float = 1.0,
        filter_groups: Mapping[str, Any] | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.engine = engine
        self.task = task
        self.tokenizer = byte_tokens if tokenizer is None else tokenizer
        self.n = require_at_least_one("actor_rollout_ref.rollout.n", n)
        self.train_batch_size = require_at_least_one("data.train_batch_size", train_batch_size)
        self.max_response_length = require_at_least_one("data.max_response_length", max_response_length)
        self.temperature = temperature
        options = {"enable": False, "max_num_gen_batches": 10, **(filter_groups or {})}
        bound = require_at_least_one("algorithm.filter_groups.max_num_gen_batches", options["max_num_gen_batches"])
        self.dynamic = bool(options["enable"])
        self.most_batches = bound if self.dynamic else 1

    def sample(self, generator: torch.Generator) -> Sample:
        """Generate the groups of one rollout.

        Args:
            generator: Source of the questions; the engine has a seed of its own.
        """
        kept: list[Group] = []
        dropped: list[Group] = []
        for _ in range(self.most_batches):
            for group in self._generate(generator):
                (kept if group.mixed or not self.dynamic else dropped).append(group)
            if len(kept) >= self.train_batch_size:
                break
        rewards = [reward for group in kept + dropped for reward in group.rewards]
        return Sample((kept + dropped)[: self.train_batch_size], sum(rewards) / len(rewards))

    def _generate(self, generator: torch.Generator) -> list[Group]:
        items = self.task.sample(self.train_batch_size, generator)
        prompts = [self.tokenizer.encode_prompt(item.prompt) for item in items]
        repeated = [prompt for prompt in prompts for _ in range(self.n)]
        completions = self.engine.generate(repeated, self.max_response_length, self.temperature)
        return [
            self._group(item, prompt, completions[self.n * row : self.n * (row + 1)])
            for row, (item, prompt) in enumerate(zip(items, prompts, strict=True))
        ]

    def _group(self, item: TaskItem, prompt: list[int], completions: list[Completion]) -> Group:
        responses = [self.tokenizer.decode_response(completion.token_ids) for completion in completions]
        return Group(prompt, completions, [self.task.score(item, response) for response in responses])


def require_at_least_one(key: str, value: int) -> int:
    """The value itself, if it is a possible count.

    Args:
        key: What to call it in the error.
        value: The count.

    Raises:
        ValueError: The value is under 1.

    Example:
        >>> require_at_least_one("data.train_batch_size", 0)
        Traceback (most recent call last):
        ValueError: data.train_batch_size = 0 is not allowed; allowed: a whole number of at least 1
    """
    if value < 1:
        raise ValueError(f"{key} = {value} is not allowed; allowed: a whole number of at least 1")
    return value
