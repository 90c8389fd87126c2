"""One token from logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightning_rollout_is.engines.filters import SamplingFilters


def draw(
    logits: NDArray[np.float64], stream: np.random.Generator, filters: SamplingFilters | None = None
) -> tuple[int, float]:
    """Sample a token, with its log-prob under the very distribution that it was sampled from.

    Args:
        logits: Of every token, divided by the temperature, (vocabulary,).
        stream: Source of chance.
        filters: What the sampler leaves out; nothing by default.

    Returns:
        Token id, and log-prob in nats.

    Example:
        >>> draw(np.array([0.0, -1e3]), np.random.default_rng(0))
        (0, 0.0)
    """
    log_probs = logits - np.logaddexp.reduce(logits)
    if filters is not None:
        log_probs = filters.apply(log_probs)
    token = int(stream.choice(len(log_probs), p=np.exp(log_probs)))
    return token, float(log_probs[token])
