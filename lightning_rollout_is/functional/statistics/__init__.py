"""Statistics that are functions of sums and maxima, so that batches, ranks and steps merge exactly."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from lightning_rollout_is.functional.details import DECILES
from lightning_rollout_is.functional.groups import GroupSums
from lightning_rollout_is.functional.signed_log_bins import BINS, EDGES
from lightning_rollout_is.functional.statistics import (
    applied,
    chi_square,
    divergence,
    faults,
    group,
    histogram,
    masking,
    missing,
    perplexity,
    position,
    probability,
    sequence,
    standard_error,
    veto,
    weight,
)
from lightning_rollout_is.functional.statistics.empty import NoMaxima, NoSums
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class Statistic(NamedTuple):
    """What a batch adds, and what the total means. A new statistic is a new file and a new line below."""

    sums: Any
    """NamedTuple class of what merges by addition: scalars, or vectors of ``width`` entries."""
    maxima: Any
    """NamedTuple class of scalars that merge by taking the larger."""
    update: Callable[[ImportanceWeights], tuple[Any, Any]]
    """From a batch to what each sequence adds: both classes, with a (sequences,) tensor in each field; no host sync.

    Where the sums are vectors, their fields are (rows, width), of any number of rows to be added up.

    A sequence without a valid token adds nothing but missing tokens: it has 0 in each other sum, and any maxima.
    """
    compute: Callable[[Any, Any], dict[str, Scalar]]
    """From merged sums and maxima to named values."""
    width: int | None = None
    """Entries of each of the sums; ``None`` for scalars."""


WEIGHT = Statistic(weight.WeightSums, weight.WeightMaxima, weight.weight_update, weight.weight_compute)
SEQUENCE = Statistic(
    sequence.SequenceSums, sequence.SequenceMaxima, sequence.sequence_update, sequence.sequence_compute
)
MASKING = Statistic(masking.MaskingSums, NoMaxima, masking.masking_update, masking.masking_compute)
VETO = Statistic(veto.VetoSums, NoMaxima, veto.veto_update, veto.veto_compute)
DIVERGENCE = Statistic(divergence.DivergenceSums, NoMaxima, divergence.divergence_update, divergence.divergence_compute)
PERPLEXITY = Statistic(
    perplexity.PerplexitySums, perplexity.PerplexityMaxima, perplexity.perplexity_update, perplexity.perplexity_compute
)
MISSING = Statistic(missing.MissingSums, NoMaxima, missing.missing_update, missing.missing_compute)
FAULTS = Statistic(NoSums, faults.FaultMaxima, faults.fault_update, faults.fault_compute)

ALL = (WEIGHT, SEQUENCE, VETO, DIVERGENCE, PERPLEXITY, MISSING, MASKING, FAULTS)
"""Every statistic; its place in this list is its number in a packed vector. New ones go to the end."""

APPLIED = Statistic(applied.AppliedSums, NoMaxima, applied.applied_update, applied.applied_compute)
CHI_SQUARE = Statistic(chi_square.ChiSquareSums, NoMaxima, chi_square.chi_square_update, chi_square.chi_square_compute)
PROBABILITY = Statistic(
    probability.ProbabilitySums,
    probability.ProbabilityMaxima,
    probability.probability_update,
    probability.probability_compute,
)
STANDARD_ERROR = Statistic(
    standard_error.StandardErrorSums,
    NoMaxima,
    standard_error.standard_error_update,
    standard_error.standard_error_compute,
)
LOG_RATIO_HISTOGRAM = Statistic(
    histogram.HistogramSums, NoMaxima, histogram.log_ratio_update, histogram.log_ratio_compute, BINS
)
APPLIED_WEIGHT_HISTOGRAM = Statistic(
    histogram.HistogramSums, NoMaxima, histogram.applied_weight_update, histogram.applied_weight_compute, BINS
)
POSITION = Statistic(position.PositionSums, NoMaxima, position.position_update, position.position_compute, DECILES)

DETAILS = (
    APPLIED, CHI_SQUARE, PROBABILITY, STANDARD_ERROR, LOG_RATIO_HISTOGRAM, APPLIED_WEIGHT_HISTOGRAM, POSITION
)  # fmt: skip
"""What the specification does not ask for, and what takes a second pass over the tokens; numbered after ``ALL``."""

HISTOGRAMS = {
    "log_ratio": (LOG_RATIO_HISTOGRAM, EDGES),
    "applied_weight": (APPLIED_WEIGHT_HISTOGRAM, histogram.WEIGHT_EDGES),
}
"""By name: whose sums are its counts, and the edges of its bins."""


@functools.lru_cache
def groups_named(names: tuple[str, ...]) -> Statistic:
    """The core values of each group; for the same names the same statistic."""
    return Statistic(
        GroupSums, NoMaxima, group.group_update, lambda sums, _: group.group_compute(names, sums), len(names) + 1
    )


def number_of(statistic: Statistic) -> int:
    """The number of a statistic in a packed vector."""
    numbered = (*ALL, *DETAILS)
    return numbered.index(statistic) if statistic in numbered else len(numbered)


__all__ = [
    "ALL",
    "APPLIED",
    "APPLIED_WEIGHT_HISTOGRAM",
    "CHI_SQUARE",
    "DETAILS",
    "DIVERGENCE",
    "FAULTS",
    "HISTOGRAMS",
    "LOG_RATIO_HISTOGRAM",
    "MASKING",
    "MISSING",
    "PERPLEXITY",
    "POSITION",
    "PROBABILITY",
    "SEQUENCE",
    "STANDARD_ERROR",
    "VETO",
    "WEIGHT",
    "Statistic",
    "groups_named",
    "number_of",
]
