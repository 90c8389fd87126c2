"""Statistics of the raw importance weights over valid tokens."""

from typing import NamedTuple

import torch

from lightning_rollout_is.functional.excess import LOG_WEIGHT_LIMIT
from lightning_rollout_is.functional.statistics.empty import where_counted
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class WeightSums(NamedTuple):
    """Sums over valid tokens; moments about 1, where healthy weights live."""

    tokens: Scalar
    excess: Scalar
    """Raw weight minus 1."""
    bounded_excess: Scalar
    """The same with the weight clamped to [lower, upper]."""
    bounded_excess_squared: Scalar
    high: Scalar
    low: Scalar
    share: Scalar
    """What ``high`` and ``low`` are fractions of: tokens, or at the sequence level sequences."""


class WeightMaxima(NamedTuple):
    """Extremes of the raw log weight."""

    log_weight: Scalar
    negative_log_weight: Scalar


def weight_update(weights: ImportanceWeights) -> tuple[WeightSums, WeightMaxima]:
    """What each sequence adds, (sequences,) each."""
    units = weights.units
    sums = WeightSums(
        tokens=weights.sums.tokens,
        excess=units.excess,
        bounded_excess=units.bounded_excess,
        bounded_excess_squared=units.bounded_excess_squared,
        high=units.high,
        low=units.low,
        share=units.share,
    )
    return sums, WeightMaxima(units.largest, -units.smallest)


def weight_compute(sums: WeightSums, maxima: WeightMaxima) -> dict[str, Scalar]:
    r"""Mean, spread, extremes and effective sample size of the weights (specification, section 5.1).

    With :math:`w` clamped to [lower, upper] and :math:`u = w - 1`: :math:`\text{std}^2 = E[u^2] - E[u]^2` and
    :math:`\text{ESS} = E[w]^2 / E[w^2] = E[w]^2 / (E[w]^2 + \text{std}^2)`, in (0, 1].

    Returns:
        ``rollout_is_mean``, ``_std``, ``_min``, ``_max``, ``_eff_sample_size``, ``_ratio_fraction_high`` and ``_low``;
        float64 scalars, NaN without a valid token.

    Example:
        >>> one, zero = torch.tensor(1.0), torch.tensor(0.0)
        >>> sums = WeightSums(4 * one, 2 * one, 2 * one, 4 * one, zero, zero, 4 * one)  # weights 2, 2, 1, 0
        >>> round(weight_compute(sums, WeightMaxima(one, one))["rollout_is_eff_sample_size"].item(), 4)
        0.75
    """
    mean, square = sums.bounded_excess / sums.tokens, sums.bounded_excess_squared / sums.tokens
    variance = (square - mean.square()).clamp(min=0.0)
    return {
        "rollout_is_mean": 1.0 + sums.excess / sums.tokens,
        "rollout_is_std": variance.sqrt(),
        "rollout_is_min": where_counted(sums.tokens, _capped_exp(-maxima.negative_log_weight)),
        "rollout_is_max": where_counted(sums.tokens, _capped_exp(maxima.log_weight)),
        "rollout_is_eff_sample_size": (1.0 + mean).square() / ((1.0 + mean).square() + variance),
        "rollout_is_ratio_fraction_high": sums.high / sums.share,
        "rollout_is_ratio_fraction_low": sums.low / sums.share,
    }


def _capped_exp(log_weight: Scalar) -> Scalar:
    return torch.exp(log_weight.clamp(max=LOG_WEIGHT_LIMIT))
