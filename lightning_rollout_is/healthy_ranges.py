"""Which values of a statistic are healthy, and from where on they call for action."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

Grade = Literal["healthy", "watch", "unhealthy"]
ANYTHING = (-math.inf, math.inf)


class HealthyRange(NamedTuple):
    """One statistic, as a reader sees it."""

    label: str
    ideal: float
    """Its value where both policies agree."""
    healthy: tuple[float, float] = ANYTHING
    warning: tuple[float, float] = ANYTHING
    """Outside this interval, which contains ``healthy``, something has to be done."""
    meaning: str = ""
    """What a value outside ``healthy`` says."""
    remedy: str = ""
    """What to set or to look at then."""
    relative: bool = False
    """Whether a half is as far from the ideal as a double."""

    def grade(self, value: float) -> Grade:
        """How a value reads; one that is not a number reads ``"watch"``.

        Example:
            >>> [RANGES["rollout_is_eff_sample_size"].grade(value) for value in (0.9, 0.4, 0.2)]
            ['healthy', 'watch', 'unhealthy']
        """
        if not math.isfinite(value):
            return "watch"
        if not self.warning[0] <= value <= self.warning[1]:
            return "unhealthy"
        return "healthy" if self.healthy[0] <= value <= self.healthy[1] else "watch"

    def distance(self, value: float) -> float:
        """How far a value is from the ideal, 0 or more: the largest of a run is its worst.

        Example:
            >>> ratio = RANGES["mismatch_ppl_ratio"]
            >>> ratio.distance(0.5) == ratio.distance(2.0) > ratio.distance(1.9)
            True
        """
        if not self.relative:
            return abs(value - self.ideal)
        return abs(math.log(value / self.ideal)) if value > 0 else math.inf

    def limits(self) -> str:
        """The healthy interval in words.

        Example:
            >>> RANGES["mismatch_kl"].limits(), RANGES["rollout_is_eff_sample_size"].limits()
            ('-0.01 to 0.01', '0.5 or more')
        """
        low, high = self.healthy
        if math.isinf(low):
            return "" if math.isinf(high) else f"{high:g} or less"
        return f"{low:g} or more" if math.isinf(high) else f"{low:g} to {high:g}"


def _share(
    label: str, healthy: float, warning: float = math.inf, *, meaning: str = "", remedy: str = ""
) -> HealthyRange:
    return HealthyRange(label, 0.0, (-math.inf, healthy), (-math.inf, warning), meaning, remedy)


SAME_MODEL = "check that both policies are the same model, with the same weights, and that log-probs are in float32"
BOUNDS = "adjust algorithm.rollout_is_threshold (token 1.5 to 5, sequence 2 to 10, geometric 1.0002 to 1.001)"

RANGES: dict[str, HealthyRange] = {
    "mismatch_k3_kl": HealthyRange(
        "K3, nats a token",
        0.0,
        (-math.inf, 5e-4),
        meaning="the rollout engine gives its own tokens other probabilities than the trainer does",
        remedy=(
            "sample in more bits, such as bfloat16; as long as the two differ, keep the loss corrected "
            "(algorithm.rollout_is: true)"
        ),
    ),
    "mismatch_kl": HealthyRange(
        "KL(rollout || training), nats a token",
        0.0,
        (-0.01, 0.01),
        (-0.1, 0.1),
        "on average the trainer disagrees with the engine about the sampled tokens",
        "compare temperature, top-p and precision of the engine and the trainer",
    ),
    "rollout_is_eff_sample_size": HealthyRange(
        "Effective sample size, share of the batch",
        1.0,
        (0.5, math.inf),
        (0.3, math.inf),
        "a few tokens carry most of the weight",
        "algorithm.rollout_is_level: geometric",
    ),
    "rollout_is_mean": HealthyRange(
        "Importance weight, mean",
        1.0,
        (0.8, 1.25),
        (0.5, 2.0),
        "the weights lean to one side",
        "check that the rollout log-probs belong to the same tokens (actor_rollout_ref.rollout.calculate_log_probs: "
        "true)",
        relative=True,
    ),
    "rollout_is_std": HealthyRange(
        "Importance weight, std",
        0.0,
        (-math.inf, 0.5),
        (-math.inf, 1.0),
        "the weights spread widely",
        "algorithm.rollout_is_level: geometric",
    ),
    "rollout_is_max": HealthyRange("Importance weight, largest", 1.0, relative=True),
    "mismatch_ppl_ratio": HealthyRange(
        "Perplexity, training / rollout",
        1.0,
        (0.9, 1.1),
        meaning="one policy is the more confident of the two",
        remedy="compare the temperature of the engine and of the trainer",
        relative=True,
    ),
    "rollout_is_veto_fraction": _share(
        "Vetoed sequences",
        0.05,
        0.1,
        meaning="sequences with a hopeless token train nothing",
        remedy="algorithm.rollout_is_veto_threshold: 1e-3",
    ),
    "rollout_is_catastrophic_token_fraction": _share(
        "Tokens under the veto",
        0.01,
        0.01,
        meaning="the trainer finds sampled tokens next to impossible",
        remedy=SAME_MODEL,
    ),
    "rollout_is_masked_fraction": _share(
        "Tokens masked by the bounds", 0.1, 0.3, meaning="the bounds drop many tokens", remedy=BOUNDS
    ),
    "rollout_is_ratio_fraction_high": _share(
        "Weights above the upper threshold", 0.1, meaning="many weights are cut at the top", remedy=BOUNDS
    ),
    "rollout_is_ratio_fraction_low": _share(
        "Weights under the lower threshold", 0.1, meaning="many weights lie under the bounds", remedy=BOUNDS
    ),
    "rollout_is_seq_max_deviation": _share(
        "Largest distance of a sequence's weight from 1", 1.0, meaning="single sequences stand apart", remedy=SAME_MODEL
    ),
    "rollout_is_missing_fraction": _share(
        "Tokens without a rollout log-prob",
        0.0,
        meaning="the engine left out the log-prob of some tokens, whose weight is 0",
        remedy="actor_rollout_ref.rollout.calculate_log_probs: true",
    ),
}
"""By metric name without prefix, the most telling first.

Warnings are the specification's. Where it leaves a healthy range open ("near 1"), or has none, the number is chosen
here: engines in bfloat16 or int8 stay under a K3 of 5e-4, one in int4 does not.
"""
