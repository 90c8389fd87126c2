"""Whether the mismatch grows along the response."""

from typing import NamedTuple

from torch import Tensor

from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


class PositionSums(NamedTuple):
    """Sums over valid tokens in each tenth of the response, (10,); log ratios within plus or minus 20 nats."""

    tokens: Tensor
    abs_log_ratio: Tensor
    k3: Tensor


def position_update(weights: ImportanceWeights) -> tuple[PositionSums, NoMaxima]:
    """What the tokens add, (lanes, 10) each."""
    details, flaw = weights.known_details, weights.sums.flaw.sum()
    return PositionSums(details.decile_tokens + flaw, details.decile_abs_log_ratio, details.decile_k3), NoMaxima()


def position_compute(sums: PositionSums, _: NoMaxima) -> dict[str, Scalar]:
    """Mean |log ratio| and K3 by tenth of the response: of n tokens inside the mask, number i (from 0) is in 10 i / n.

    Returns:
        ``mismatch_abs_log_ratio_decile_01`` to ``_10`` and ``mismatch_k3_kl_decile_01`` to ``_10``, nats a token, never
        negative; NaN for a tenth without a valid token.

    Example:
        >>> import torch
        >>> tokens, ramp = torch.full((10,), 2.0), torch.arange(10.0)
        >>> position_compute(PositionSums(tokens, ramp, ramp), NoMaxima())["mismatch_abs_log_ratio_decile_10"]
        tensor(4.5000)
    """
    means = {"mismatch_abs_log_ratio": sums.abs_log_ratio / sums.tokens, "mismatch_k3_kl": sums.k3 / sums.tokens}
    return {
        f"{name}_decile_{number:02d}": value
        for name, mean in means.items()
        for number, value in enumerate(mean.unbind(), start=1)
    }
