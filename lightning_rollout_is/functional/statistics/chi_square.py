"""Chi-square divergence of the training from the rollout policy, which is what makes importance weights vary."""

from typing import NamedTuple

from lightning_rollout_is.functional.excess import clamped, excess_of
from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class ChiSquareSums(NamedTuple):
    """Moments about 1 of raw weights: of tokens, and of whole sequences."""

    tokens: Scalar
    excess: Scalar
    excess_squared: Scalar
    sequences: Scalar
    sequence_excess: Scalar
    sequence_excess_squared: Scalar


def chi_square_update(weights: ImportanceWeights) -> tuple[ChiSquareSums, NoMaxima]:
    """What each sequence adds, (sequences,) each."""
    sums, details = weights.sums, weights.known_details
    # A sequence without a valid token has log ratio 0, and adds nothing.
    excess = excess_of(clamped(sums.log_ratio))
    return ChiSquareSums(
        sums.tokens, details.excess, details.excess_squared, sums.present, excess, excess.square()
    ), NoMaxima()


def chi_square_compute(sums: ChiSquareSums, _: NoMaxima) -> dict[str, Scalar]:
    r"""Chi-square of a token's and of a whole sequence's policy, whatever the level of the weights is.

    .. math:: \chi^2 = E_\text{rollout}[w^2] - 1 = E[(w - 1)^2] + 2 E[w - 1]

    with :math:`w` a token's ratio, or a sequence's product of them, within exp(-20) and exp(20). An estimate from few
    samples may be negative.

    Returns:
        ``mismatch_chi2_token``, and ``mismatch_chi2_seq``, a mean over sequences; NaN without a valid token.

    Example:
        >>> import torch
        >>> sums = ChiSquareSums(*torch.tensor([4.0, 0.0, 1.0, 2.0, 1.0, 1.0]))
        >>> chi_square_compute(sums, NoMaxima())
        {'mismatch_chi2_token': tensor(0.2500), 'mismatch_chi2_seq': tensor(1.5000)}
    """
    return {
        "mismatch_chi2_token": (sums.excess_squared + 2.0 * sums.excess) / sums.tokens,
        "mismatch_chi2_seq": (sums.sequence_excess_squared + 2.0 * sums.sequence_excess) / sums.sequences,
    }
