"""Statistics of the weights that multiply the loss."""

from typing import NamedTuple

from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class AppliedSums(NamedTuple):
    """Sums over valid tokens, of weights after bounds and veto."""

    tokens: Scalar
    weight: Scalar
    weight_squared: Scalar


def applied_update(weights: ImportanceWeights) -> tuple[AppliedSums, NoMaxima]:
    """What each sequence adds, (sequences,) each."""
    details = weights.known_details
    return AppliedSums(weights.sums.tokens, details.applied, details.applied_squared), NoMaxima()


def applied_compute(sums: AppliedSums, _: NoMaxima) -> dict[str, Scalar]:
    r"""Mean and effective sample size of the applied weights, rejected tokens included as weights of 0.

    .. math:: \text{ESS} = \frac{E[w]^2}{E[w^2]} \in [0, 1]

    Returns:
        ``rollout_is_applied_mean`` in [0, upper] and ``rollout_is_applied_eff_sample_size``, 0 where every weight is 0;
        NaN without a valid token.

    Example:
        >>> import torch
        >>> applied_compute(AppliedSums(*torch.tensor([4.0, 2.0, 2.0])), NoMaxima())  # weights 1, 1, 0, 0
        {'rollout_is_applied_mean': tensor(0.5000), 'rollout_is_applied_eff_sample_size': tensor(0.5000)}
    """
    mean, square = sums.weight / sums.tokens, sums.weight_squared / sums.tokens
    return {
        "rollout_is_applied_mean": mean,
        "rollout_is_applied_eff_sample_size": (mean.square() / square).masked_fill(square == 0.0, 0.0),
    }
