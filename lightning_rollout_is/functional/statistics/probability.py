"""How far the two policies' probabilities of the sampled tokens lie apart."""

from typing import NamedTuple

from lightning_rollout_is.functional.statistics.empty import where_counted
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class ProbabilitySums(NamedTuple):
    """Sums over valid tokens."""

    tokens: Scalar
    gap: Scalar
    """|training - rollout probability|."""
    confident_disagreements: Scalar


class ProbabilityMaxima(NamedTuple):
    """Of a token's probabilities."""

    gap: Scalar


def probability_update(weights: ImportanceWeights) -> tuple[ProbabilitySums, ProbabilityMaxima]:
    """What each sequence adds, (sequences,) each."""
    details = weights.known_details
    sums = ProbabilitySums(weights.sums.tokens, details.probability_gap, details.confident_disagreements)
    return sums, ProbabilityMaxima(details.largest_probability_gap)


def probability_compute(sums: ProbabilitySums, maxima: ProbabilityMaxima) -> dict[str, Scalar]:
    """Mean and largest difference of probabilities, and how often a confident choice is contradicted.

    Returns:
        ``mismatch_probs_diff_mean``, ``mismatch_probs_diff_max``, and ``mismatch_confident_disagreement_fraction``, the
        share of valid tokens with rollout probability 0.5 or more and a log ratio under -2 nats; each in [0, 1], NaN
        without a valid token.

    Example:
        >>> import torch
        >>> sums = ProbabilitySums(*torch.tensor([4.0, 1.0, 1.0]))
        >>> probability_compute(sums, ProbabilityMaxima(torch.tensor(0.5)))["mismatch_probs_diff_mean"]
        tensor(0.2500)
    """
    return {
        "mismatch_probs_diff_mean": sums.gap / sums.tokens,
        "mismatch_probs_diff_max": where_counted(sums.tokens, maxima.gap),
        "mismatch_confident_disagreement_fraction": sums.confident_disagreements / sums.tokens,
    }
