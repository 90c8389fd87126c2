"""Asynchronous training in small: an engine that runs behind the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lightning_rollout_is.engines.interface import Completion, RolloutEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class StaleEngine:
    """Passes on only every ``every``-th refresh, the first included.

    Args:
        engine: The engine that samples.
        every: Refreshes from one that is passed on to the next; 1 passes on all.

    Raises:
        ValueError: ``every`` is under 1.
    """

    def __init__(self, engine: RolloutEngine, every: int) -> None:
        if every < 1:
            raise ValueError(f"every = {every} is not allowed; allowed: a whole number from 1 (never stale) up")
        self.engine = engine
        self.every = every
        self._refreshes = 0

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample with the weights of the last refresh that was passed on."""
        return self.engine.generate(prompts, max_new_tokens, temperature)

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Pass the weights on if it is their turn."""
        if self._refreshes % self.every == 0:
            self.engine.sync_weights(policy)
        self._refreshes += 1
