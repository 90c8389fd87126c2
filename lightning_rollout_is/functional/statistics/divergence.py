"""KL divergence of the rollout from the training policy, estimated on the sampled tokens."""

from typing import NamedTuple

from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class DivergenceSums(NamedTuple):
    """Sums over valid tokens, nats."""

    tokens: Scalar
    k1: Scalar
    k3: Scalar


def divergence_update(weights: ImportanceWeights) -> tuple[DivergenceSums, NoMaxima]:
    """What each sequence adds, (sequences,) each."""
    sums = weights.sums
    return DivergenceSums(sums.tokens, -sums.log_ratio, sums.k3), NoMaxima()


def divergence_compute(sums: DivergenceSums, _: NoMaxima) -> dict[str, Scalar]:
    r"""KL(rollout || training) by the estimators k1 and k3 (section 5.4).

    .. math:: k_1 = E[-\ell] \qquad k_3 = E[e^{\ell} - \ell - 1] \ge 0

    Source: Schulman, "Approximating KL Divergence" (2020).

    Returns:
        ``mismatch_kl`` (nats a token, may be negative, inf if the training policy gives a sampled token probability 0)
        and ``mismatch_k3_kl`` (nats a token, never negative); NaN without a valid token.

    Example:
        >>> import torch
        >>> divergence_compute(DivergenceSums(*torch.tensor([4.0, 2.0, 1.0])), NoMaxima())
        {'mismatch_kl': tensor(0.5000), 'mismatch_k3_kl': tensor(0.2500)}
    """
    return {"mismatch_kl": sums.k1 / sums.tokens, "mismatch_k3_kl": sums.k3 / sums.tokens}
