"""How many tokens lack a log-prob."""

from typing import NamedTuple

from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class MissingSums(NamedTuple):
    """Counts of tokens inside the mask."""

    tokens: Scalar
    missing_tokens: Scalar


def missing_update(weights: ImportanceWeights) -> tuple[MissingSums, NoMaxima]:
    """What each sequence adds, (sequences,) each."""
    sums = weights.sums
    return MissingSums(sums.inside, sums.inside - sums.tokens), NoMaxima()


def missing_compute(sums: MissingSums, _: NoMaxima) -> dict[str, Scalar]:
    """Fraction of the tokens inside the mask that have no usable log-prob, and so weight 0.

    Returns:
        ``rollout_is_missing_fraction`` in [0, 1]; NaN without a token inside the mask.

    Example:
        >>> import torch
        >>> missing_compute(MissingSums(*torch.tensor([10.0, 1.0])), NoMaxima())
        {'rollout_is_missing_fraction': tensor(0.1000)}
    """
    return {"rollout_is_missing_fraction": sums.missing_tokens / sums.tokens}
