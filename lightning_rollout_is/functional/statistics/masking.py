"""How much the bounds of mask mode reject."""

from typing import NamedTuple

from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class MaskingSums(NamedTuple):
    """Counts of valid tokens and of sequences that hold one."""

    tokens: Scalar
    masked_tokens: Scalar
    sequences: Scalar
    masked_sequences: Scalar


def masking_update(weights: ImportanceWeights) -> tuple[MaskingSums, NoMaxima]:
    """What each sequence adds, (sequences,) each."""
    outside = weights.units.outside
    return MaskingSums(weights.sums.tokens, outside, weights.sums.present, outside.sign()), NoMaxima()


def masking_compute(sums: MaskingSums, _: NoMaxima) -> dict[str, Scalar]:
    """Fraction of valid tokens zeroed by the bounds, and of sequences with at least one such token (section 5.3).

    Returns:
        ``rollout_is_masked_fraction`` and ``rollout_is_seq_masked_fraction`` in [0, 1]; NaN without a valid token.

    Example:
        >>> import torch
        >>> masking_compute(MaskingSums(*torch.tensor([10.0, 2.0, 4.0, 1.0])), NoMaxima())["rollout_is_masked_fraction"]
        tensor(0.2000)
    """
    return {
        "rollout_is_masked_fraction": sums.masked_tokens / sums.tokens,
        "rollout_is_seq_masked_fraction": sums.masked_sequences / sums.sequences,
    }
