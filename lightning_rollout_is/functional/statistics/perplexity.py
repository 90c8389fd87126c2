"""Perplexity of both policies on each sequence, and their difference."""

from typing import NamedTuple

import torch

from lightning_rollout_is.functional.excess import clamped
from lightning_rollout_is.functional.statistics.empty import where_counted
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class PerplexitySums(NamedTuple):
    """Sums over sequences with a valid token."""

    sequences: Scalar
    training_ppl: Scalar
    rollout_ppl: Scalar
    training_log_ppl: Scalar
    rollout_log_ppl: Scalar
    log_ppl_difference: Scalar
    log_ppl_distance: Scalar
    ppl_ratio: Scalar


class PerplexityMaxima(NamedTuple):
    """Extremes over sequences of the training minus the rollout log-perplexity."""

    log_ppl_difference: Scalar
    negative_log_ppl_difference: Scalar


def perplexity_update(weights: ImportanceWeights) -> tuple[PerplexitySums, PerplexityMaxima]:
    """What each sequence adds, (sequences,) each."""
    totals = weights.sums
    log_probs = torch.stack([totals.old_log_prob, totals.rollout_log_prob, totals.log_ratio])
    log_ppl = -log_probs / totals.tokens.clamp(min=1.0)
    ppl = clamped(log_ppl).exp() * totals.present
    training, rollout, difference = log_ppl.unbind()
    training_ppl, rollout_ppl, ratio = ppl.unbind()
    sums = PerplexitySums(
        weights.sums.present, training_ppl, rollout_ppl, training, rollout, difference, difference.abs(), ratio
    )
    return sums, PerplexityMaxima(difference, -difference)


def perplexity_compute(sums: PerplexitySums, maxima: PerplexityMaxima) -> dict[str, Scalar]:
    r"""Means over sequences of perplexities and of their log difference (section 5.4).

    A sequence's log-perplexity is minus its mean log-prob; :math:`d` is the training minus the rollout
    log-perplexity, and the perplexity ratio is the mean of :math:`e^d`. Above 1, training is the less confident.

    Returns:
        ``mismatch_training_ppl``, ``_rollout_ppl``, ``_training_log_ppl``, ``_rollout_log_ppl``, ``_log_ppl_diff``,
        ``_log_ppl_abs_diff``, ``_log_ppl_diff_max``, ``_log_ppl_diff_min`` and ``_ppl_ratio``; float64 scalars, NaN
        without a sequence.

    Example:
        >>> sums = PerplexitySums(*torch.tensor([2.0, 8.0, 6.0, 2.8, 2.2, 0.6, 0.6, 2.7]))
        >>> perplexity_compute(sums, PerplexityMaxima(*torch.tensor([0.5, -0.1])))["mismatch_ppl_ratio"]
        tensor(1.3500)
    """
    count = sums.sequences
    return {
        "mismatch_training_ppl": sums.training_ppl / count,
        "mismatch_rollout_ppl": sums.rollout_ppl / count,
        "mismatch_training_log_ppl": sums.training_log_ppl / count,
        "mismatch_rollout_log_ppl": sums.rollout_log_ppl / count,
        "mismatch_log_ppl_diff": sums.log_ppl_difference / count,
        "mismatch_log_ppl_abs_diff": sums.log_ppl_distance / count,
        "mismatch_log_ppl_diff_max": where_counted(count, maxima.log_ppl_difference),
        "mismatch_log_ppl_diff_min": where_counted(count, -maxima.negative_log_ppl_difference),
        "mismatch_ppl_ratio": sums.ppl_ratio / count,
    }
