"""Statistics that are functions of sums and maxima, so that batches, ranks and steps merge exactly."""

from collections.abc import Callable
from typing import Any, NamedTuple

from lightning_rollout_is.functional.statistics import (
    divergence,
    faults,
    masking,
    missing,
    perplexity,
    sequence,
    veto,
    weight,
)
from lightning_rollout_is.functional.statistics.empty import NoMaxima, NoSums
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class Statistic(NamedTuple):
    """What a batch adds, and what the total means. A new statistic is a new file and a new line below."""

    sums: Any
    """NamedTuple class of scalars that merge by addition."""
    maxima: Any
    """NamedTuple class of scalars that merge by taking the larger."""
    update: Callable[[ImportanceWeights], tuple[Any, Any]]
    """From a batch to what each sequence adds: both classes, with a (sequences,) tensor in each field; no host sync.

    A sequence without a valid token adds nothing but missing tokens: it has 0 in each other sum, and any maxima.
    """
    compute: Callable[[Any, Any], dict[str, Scalar]]
    """From merged sums and maxima to named values."""


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

__all__ = ["ALL", "DIVERGENCE", "FAULTS", "MASKING", "MISSING", "PERPLEXITY", "SEQUENCE", "VETO", "WEIGHT", "Statistic"]
