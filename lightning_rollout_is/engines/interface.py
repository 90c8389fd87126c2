"""What a rollout engine is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Completion(NamedTuple):
    """One sampled response.

    Example:
        >>> Completion(token_ids=[7, 2], log_probs=[-0.5, -0.1]).token_ids
        [7, 2]
    """

    token_ids: list[int]
    """Sampled tokens, at least one; the end token closes them if it was sampled."""
    log_probs: list[float]
    """Log-prob (nats) of each token under the distribution that it was sampled from, temperature included."""


@runtime_checkable
class RolloutEngine(Protocol):
    """Samples responses with the weights that it last received."""

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample one response a prompt, from the full distribution: no top-k, no top-p, no penalty.

        Args:
            prompts: Token ids of each prompt, at least one token each; lengths may differ. Repeat a prompt to sample
                it several times.
            max_new_tokens: Most tokens of a response, its end token included.
            temperature: The logits are divided by it before the softmax; above 0.

        Returns:
            One completion a prompt, in the order of the prompts, with 1 to ``max_new_tokens`` tokens each.
        """
        ...

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Take over the policy's present weights. Must come before the first ``generate``."""
        ...
