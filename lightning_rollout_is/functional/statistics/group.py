"""The core values of parts of a batch."""

from lightning_rollout_is.functional.groups import GroupSums
from lightning_rollout_is.functional.statistics.empty import NoMaxima
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.types import Scalar


def group_update(weights: ImportanceWeights) -> tuple[GroupSums, NoMaxima]:
    """What each sequence adds, (sequences, groups + 1) each."""
    return weights.known_groups, NoMaxima()


def group_compute(names: tuple[str, ...], sums: GroupSums) -> dict[str, Scalar]:
    """Mean weight, effective sample size, KL, K3 and missing tokens of each group.

    Returns:
        ``<value>/<group>`` for ``rollout_is_mean``, ``rollout_is_eff_sample_size``, ``mismatch_kl``,
        ``mismatch_k3_kl`` and ``rollout_is_missing_fraction``, as they are defined for the whole batch; NaN for a group
        without a valid token. ``rollout_is_ungrouped_fraction``, the share of valid tokens that belong to none.

    Example:
        >>> import torch
        >>> one, none = torch.tensor([1.0, 3.0]), torch.zeros(2)
        >>> group_compute(("math",), GroupSums(one, one, none, none, none, one, none))["rollout_is_ungrouped_fraction"]
        tensor(0.7500)
    """
    mean = 1.0 + sums.bounded_excess / sums.tokens
    variance = (sums.bounded_excess_squared / sums.tokens - (mean - 1.0).square()).clamp(min=0.0)
    values = {
        "rollout_is_mean": 1.0 + sums.excess / sums.tokens,
        "rollout_is_eff_sample_size": mean.square() / (mean.square() + variance),
        "mismatch_kl": sums.k1 / sums.tokens,
        "mismatch_k3_kl": sums.k3 / sums.tokens,
        "rollout_is_missing_fraction": (sums.inside - sums.tokens) / sums.inside,
    }
    named = {f"{value}/{name}": each[place] for value, each in values.items() for place, name in enumerate(names)}
    return named | {"rollout_is_ungrouped_fraction": sums.tokens[-1] / sums.tokens.sum()}
