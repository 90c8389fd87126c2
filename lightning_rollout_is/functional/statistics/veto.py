"""How often the veto fires."""

from typing import NamedTuple

from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class VetoSums(NamedTuple):
    """Counts of valid tokens and of sequences that hold one."""

    tokens: Scalar
    catastrophic_tokens: Scalar
    sequences: Scalar
    vetoed_sequences: Scalar


def veto_update(weights: ImportanceWeights) -> tuple[VetoSums, NoMaxima]:
    """What each sequence adds, (sequences,) each."""
    sums = weights.sums
    return VetoSums(sums.tokens, sums.catastrophic, weights.sums.present, weights.vetoed), NoMaxima()


def veto_compute(sums: VetoSums, _: NoMaxima) -> dict[str, Scalar]:
    """Fraction of sequences that were vetoed, and of valid tokens under the veto threshold (section 5.1).

    Returns:
        ``rollout_is_veto_fraction`` and ``rollout_is_catastrophic_token_fraction`` in [0, 1]; NaN without a valid
        token.

    Example:
        >>> import torch
        >>> veto_compute(VetoSums(*torch.tensor([10.0, 1.0, 4.0, 1.0])), NoMaxima())["rollout_is_veto_fraction"]
        tensor(0.2500)
    """
    return {
        "rollout_is_veto_fraction": sums.vetoed_sequences / sums.sequences,
        "rollout_is_catastrophic_token_fraction": sums.catastrophic_tokens / sums.tokens,
    }
