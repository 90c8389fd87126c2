"""Rollout engines with the faults that pipelines have, for the pictures of sick runs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from lightning_rollout_is import token_log_probs
from lightning_rollout_is.engines import Completion, RolloutEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class SickEngine:
    """A sound engine, and what goes wrong between it and the trainer.

    Args:
        engine: The engine that samples.
    """

    def __init__(self, engine: RolloutEngine) -> None:
        self.engine = engine

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Pass the weights on."""
        self.engine.sync_weights(policy)

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample, and report the log-probs as :meth:`reported` has them."""
        completions = self.engine.generate(prompts, max_new_tokens, temperature)
        return [Completion(completion.token_ids, self.reported(completion.log_probs)) for completion in completions]

    def reported(self, log_probs: list[float]) -> list[float]:
        """What reaches the trainer of the log-probs of one response."""
        return log_probs


class ShiftedByOne(SickEngine):
    """Each token gets the log-prob of the one before it; the first gets the last one's."""

    def reported(self, log_probs: list[float]) -> list[float]:
        """Rolled by one place."""
        return log_probs[-1:] + log_probs[:-1]


class FirstTokenMissing(SickEngine):
    """The first token of each response has no log-prob."""

    def reported(self, log_probs: list[float]) -> list[float]:
        """NaN, and the rest as it was."""
        return [math.nan, *log_probs[1:]]


class HotterThanTold(SickEngine):
    """Samples at a temperature of its own, and reports the log-probs of that.

    Args:
        engine: The engine that samples.
        factor: Its temperature over the one that the trainer uses.
    """

    def __init__(self, engine: RolloutEngine, factor: float) -> None:
        super().__init__(engine)
        self.factor = factor

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample at the other temperature."""
        return super().generate(prompts, max_new_tokens, self.factor * temperature)


class BeforeTemperature(SickEngine):
    """Samples at the temperature asked for, and reports log-probs as of temperature 1: a server's raw ones."""

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Keep a copy to score with."""
        super().sync_weights(policy)
        self.log_probs_of = _scorer(copy.deepcopy(policy))

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample, then score again without the temperature."""
        completions = super().generate(prompts, max_new_tokens, temperature)
        return [
            Completion(completion.token_ids, self.log_probs_of(prompt, completion.token_ids))
            for prompt, completion in zip(prompts, completions, strict=True)
        ]


def _scorer(policy: PreTrainedModel) -> Callable[[Sequence[int], list[int]], list[float]]:
    @torch.no_grad()
    def score(prompt: Sequence[int], response: list[int]) -> list[float]:
        token_ids = torch.tensor([[*prompt, *response]])
        log_probs = token_log_probs(policy(token_ids[:, :-1]).logits, token_ids[:, 1:])
        return log_probs[0, -len(response) :].tolist()

    return score
