"""Statistics of each sequence's mean raw weight."""

from typing import NamedTuple

import torch

from lightning_rollout_is.functional.bound import outside
from lightning_rollout_is.functional.statistics.empty import where_counted
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class SequenceSums(NamedTuple):
    """Sums over sequences with a valid token."""

    sequences: Scalar
    excess: Scalar
    """Mean raw weight of a sequence minus 1."""
    excess_squared: Scalar
    high: Scalar
    low: Scalar


class SequenceMaxima(NamedTuple):
    """Extremes of a sequence's mean raw weight minus 1."""

    excess: Scalar
    negative_excess: Scalar


def sequence_update(weights: ImportanceWeights) -> tuple[SequenceSums, SequenceMaxima]:
    """What each sequence adds, (sequences,) each."""
    sequences = weights.sums.present
    excess = weights.units.excess / weights.sums.tokens.clamp(min=1.0)
    high, low = outside(excess, weights.thresholds)
    sums = SequenceSums(sequences, excess, excess.square(), sequences * high, sequences * low)
    return sums, SequenceMaxima(excess, -excess)


def sequence_compute(sums: SequenceSums, maxima: SequenceMaxima) -> dict[str, Scalar]:
    """Mean, unbiased standard deviation (0 for one sequence), extremes and threshold fractions (section 5.2).

    Returns:
        ``rollout_is_seq_mean``, ``_std``, ``_min``, ``_max``, ``_max_deviation``, ``_fraction_high`` and
        ``_fraction_low``; float64 scalars, NaN without a sequence.

    Example:
        >>> one = torch.tensor(1.0)
        >>> sums = SequenceSums(2 * one, 0 * one, 2 * one, 0 * one, 0 * one)  # mean weights 2 and 0
        >>> round(sequence_compute(sums, SequenceMaxima(one, one))["rollout_is_seq_std"].item(), 4)
        1.4142
    """
    mean = sums.excess / sums.sequences
    squares = (sums.excess_squared - sums.sequences * mean.square()).clamp(min=0.0)
    high, low = where_counted(sums.sequences, maxima.excess), where_counted(sums.sequences, -maxima.negative_excess)
    return {
        "rollout_is_seq_mean": 1.0 + mean,
        "rollout_is_seq_std": (squares / (sums.sequences - 1.0).clamp(min=1.0)).sqrt(),
        "rollout_is_seq_min": 1.0 + low,
        "rollout_is_seq_max": 1.0 + high,
        "rollout_is_seq_max_deviation": torch.maximum(high.abs(), low.abs()),
        "rollout_is_seq_fraction_high": sums.high / sums.sequences,
        "rollout_is_seq_fraction_low": sums.low / sums.sequences,
    }
