"""Filters of the sampler: which tokens it never draws, and what that does to the importance ratio."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SamplingFilters:
    r"""Top-k, top-p and min-p, all off unless set.

    With a filter the engine samples from :math:`\mu(y) = p(y) 1[y \in S] / p(S)`, where :math:`p` is its full
    distribution at the sampling temperature and :math:`S` the tokens that are kept. That is what its log-probs speak
    of, so that the ratio :math:`\pi / \mu` is exact for each sampled token. But what was never sampled has no ratio:
    :math:`E_\mu[\pi / \mu] = \pi(S)`, which is under 1, and no weight makes up for the rest.

    Args:
        top_k: Keep the so many most probable tokens; 0 keeps all.
        top_p: Keep the fewest most probable tokens whose probabilities sum to at least this; 1 keeps all.
        min_p: Keep tokens with at least this fraction of the greatest probability; 0 keeps all.

    Raises:
        ValueError: A value is outside its range.
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        allowed = {
            "top_k": (self.top_k >= 0, "0 (off) or a number of tokens"),
            "top_p": (0 < self.top_p <= 1, "above 0, up to 1 (off)"),
            "min_p": (0 <= self.min_p <= 1, "0 (off) up to 1"),
        }
        for name, (met, words) in allowed.items():
            if not met:
                raise ValueError(f"{name} = {getattr(self, name)} is not allowed; allowed: {words}")

    @property
    def set_by_user(self) -> dict[str, int | float]:
        """The filters that are on.

        Example:
            >>> SamplingFilters(top_p=0.9).set_by_user
            {'top_p': 0.9}
        """
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    def warn_of_ratio(self) -> None:
        """Say what a filter does to the ratio, where one is on."""
        if self.set_by_user:
            chosen = ", ".join(f"{name} = {value}" for name, value in self.set_by_user.items())
            warnings.warn(
                f"{chosen}: tokens outside the filter are never sampled, and no importance weight makes up for them. "
                "The log-probs are those of the filtered distribution, so that the mean weight is the mass that the "
                "training policy gives to the kept tokens, under 1, and KL(rollout || training) grows by minus its "
                "logarithm. For unbiased weights set top_k = 0, top_p = 1.0, min_p = 0.0.",
                stacklevel=3,
            )

    def apply(self, log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-probs after the filters, top-k first, renormalised; -inf for tokens that are dropped.

        Args:
            log_probs: Of every token, nats, (vocabulary,).

        Example:
            >>> np.exp(SamplingFilters(top_k=2).apply(np.log([0.6, 0.2, 0.15, 0.05]))).round(2).tolist()
            [0.75, 0.25, 0.0, 0.0]
        """
        if not self.set_by_user:
            return log_probs
        order = np.argsort(-log_probs, kind="stable")
        kept = order[: self.top_k or None]
        kept = kept[log_probs[kept] >= log_probs[kept[0]] + np.log(self.min_p)] if self.min_p else kept
        kept = kept[: _fewest(log_probs[kept], self.top_p)]
        filtered = np.full_like(log_probs, -np.inf)
        filtered[kept] = log_probs[kept] - np.logaddexp.reduce(log_probs[kept])
        return filtered

    def as_dict(self) -> dict[str, int | float]:
        """All three by name."""
        return asdict(self)


def _fewest(log_probs: NDArray[np.float64], top_p: float) -> int:
    mass = np.exp(log_probs - np.logaddexp.reduce(log_probs)).cumsum()
    return int((mass < top_p).sum()) + 1
