"""Distributions over valid tokens, as counts in fixed bins: exact over any split of the data."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.functional.signed_log_bins import BINS, EDGES, bin_centers
from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar

PERCENTS = (1, 5, 50, 95, 99)
WEIGHT_EDGES = (0.0, *(math.exp(edge) for edge in EDGES[1:]))
"""Of the bins of a weight, which are those of its log; a rejected token's 0 lies in the first."""


class Histogram(NamedTuple):
    """A distribution."""

    edges: Sequence[float]
    """(bins + 1,), rising."""
    counts: Sequence[float]
    """(bins,): values from an edge to the next; whole numbers."""


class HistogramSums(NamedTuple):
    """Tokens in each bin, (bins,)."""

    counts: Tensor


def log_ratio_update(weights: ImportanceWeights) -> tuple[HistogramSums, NoMaxima]:
    """What the tokens add, (lanes, bins)."""
    return HistogramSums(weights.known_details.log_ratios + weights.sums.flaw.sum()), NoMaxima()


def log_ratio_compute(sums: HistogramSums, _: NoMaxima) -> dict[str, Scalar]:
    """Quantiles of the per-token log ratio.

    A quantile is the least value that at least so many of the tokens do not exceed; what is given is the middle of the
    bin that it lies in: within 9.1% of it, or within 7.6e-6 nats for one that close to 0. Beyond 27 nats either way it
    is given as 29.3.

    Returns:
        ``mismatch_log_ratio_p01``, ``_p05``, ``_p50``, ``_p95``, ``_p99``, nats; NaN without a valid token.

    Example:
        >>> from lightning_rollout_is.functional.signed_log_bins import BINS, bin_of
        >>> counts = torch.zeros(BINS).index_add(0, bin_of(torch.tensor([-0.1, 0.0, 0.2])), torch.ones(3))
        >>> log_ratio_compute(HistogramSums(counts), NoMaxima())["mismatch_log_ratio_p95"]
        tensor(0.1928, dtype=torch.float64)
    """
    below = sums.counts.cumsum(0)
    total = below[-1]
    # In whole numbers: 0.95 of 20 must be 19.
    ranks = torch.stack([total * percent for percent in PERCENTS])
    found = torch.searchsorted(100.0 * below, ranks).clamp(max=BINS - 1)
    values = bin_centers(below.device)[found].where(total > 0, torch.nan)
    return {f"mismatch_log_ratio_p{percent:02d}": value for percent, value in zip(PERCENTS, values, strict=True)}


def applied_weight_update(weights: ImportanceWeights) -> tuple[HistogramSums, NoMaxima]:
    """What the tokens add, (lanes, bins)."""
    return HistogramSums(weights.known_details.applied_weights + weights.sums.flaw.sum()), NoMaxima()


def applied_weight_compute(_: HistogramSums, __: NoMaxima) -> dict[str, Scalar]:
    """No named value: this one is for looking at."""
    return {}
