"""How sure the means over tokens are, given that tokens of one sequence are not independent."""

from typing import NamedTuple

import torch

from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class StandardErrorSums(NamedTuple):
    """Sums over sequences of products of their totals."""

    sequences: Scalar
    tokens: Scalar
    tokens_squared: Scalar
    k1: Scalar
    k1_tokens: Scalar
    k1_squared: Scalar
    excess: Scalar
    excess_tokens: Scalar
    excess_squared: Scalar


def standard_error_update(weights: ImportanceWeights) -> tuple[StandardErrorSums, NoMaxima]:
    """What each sequence adds, (sequences,) each."""
    sums = weights.sums
    tokens, k1, excess = sums.tokens, -sums.log_ratio, weights.units.excess
    return StandardErrorSums(
        sequences=sums.present,
        tokens=tokens,
        tokens_squared=tokens.square(),
        k1=k1,
        k1_tokens=k1 * tokens,
        k1_squared=k1.square(),
        excess=excess,
        excess_tokens=excess * tokens,
        excess_squared=excess.square(),
    ), NoMaxima()


def standard_error_compute(sums: StandardErrorSums, _: NoMaxima) -> dict[str, Scalar]:
    r"""Standard errors of KL (k1) and of the mean raw weight, clustered by sequence.

    For a mean :math:`r = \sum_i x_i / \sum_i n_i` over N sequences of :math:`n_i` tokens,

    .. math:: \text{SE}(r)^2 = \frac{N}{N - 1} \frac{\sum_i (x_i - r n_i)^2}{(\sum_i n_i)^2}

    Source: Cochran, "Sampling Techniques" (1977), chapter 6 (ratio estimators).

    Returns:
        ``mismatch_kl_stderr``, nats a token, and ``rollout_is_mean_stderr``; NaN for fewer than two sequences.

    Example:
        >>> two, zero = torch.tensor(2.0), torch.tensor(0.0)  # two sequences of one token, with k1 of 1 and of -1
        >>> sums = StandardErrorSums(two, two, two, zero, zero, two, zero, zero, zero)
        >>> standard_error_compute(sums, NoMaxima())["mismatch_kl_stderr"]
        tensor(1.)
    """
    return {
        "mismatch_kl_stderr": _of_ratio(sums, sums.k1, sums.k1_tokens, sums.k1_squared),
        "rollout_is_mean_stderr": _of_ratio(sums, sums.excess, sums.excess_tokens, sums.excess_squared),
    }


def _of_ratio(sums: StandardErrorSums, x: Scalar, x_tokens: Scalar, x_squared: Scalar) -> Scalar:
    ratio = x / sums.tokens
    residuals = x_squared - 2.0 * ratio * x_tokens + ratio.square() * sums.tokens_squared
    variance = residuals.clamp(min=0.0) * sums.sequences / (sums.sequences - 1.0)
    return (variance.sqrt() / sums.tokens).where(sums.sequences > 1.0, torch.nan)
