"""Rules that one point on its own can break."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from lightning_rollout_is.health.advice import ADVICE
from lightning_rollout_is.health.finding import Finding
from lightning_rollout_is.health.rules import Rules


class Broken(NamedTuple):
    """What a broken rule has seen."""

    metric: str
    """Name of the scalar, without prefix."""
    value: float
    threshold: float
    remark: str = ""
    """Added to what the rule means."""
    since: int | None = None
    """Step since which it is broken, where that is earlier than the first point that shows it."""

    def finding(self, rule: str, prefix: str, since: int = 0) -> Finding:
        """As a finding, in the words of the rule."""
        advice = ADVICE[rule]
        message = advice.meaning + self.remark
        return Finding(
            rule, prefix + self.metric, self.value, self.threshold, since, message, advice.causes, advice.remedy
        )


class Scalars(Mapping[str, float]):
    """The finite values of a point by their names without prefix.

    Args:
        scalars: Names to values; other names are left alone.
        prefix: What the names begin with.
    """

    def __init__(self, scalars: Mapping[str, float], prefix: str) -> None:
        named = ((name.removeprefix(prefix), float(scalars[name])) for name in scalars if name.startswith(prefix))
        self._values = {name: value for name, value in named if math.isfinite(value)}

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def check(scalars: Mapping[str, float], rules: Rules | None = None, prefix: str = "mismatch/") -> list[Finding]:
    """What is wrong with one point on its own.

    Args:
        scalars: The logged values by name; a rule whose value is absent or not finite says nothing.
        rules: The thresholds; ``None`` for the specification's.
        prefix: What the names of the statistics begin with.

    Returns:
        Findings, those that may explain the others first; ``since`` is 0.

    Example:
        >>> findings = check({"mismatch/mismatch_kl": 0.3, "mismatch/rollout_is_mean": 1.1})
        >>> [(finding.rule, finding.value, finding.threshold) for finding in findings]
        [('kl', 0.3, 0.1)]
    """
    judged = judge(Scalars(scalars, prefix), rules or Rules())
    return [broken.finding(rule, prefix) for rule, broken in judged.items() if broken is not None]


def judge(values: Mapping[str, float], rules: Rules) -> dict[str, Broken | None]:
    """Each rule that this point can answer, and how it is broken, or ``None``.

    Args:
        values: Finite values by their names without prefix.
        rules: The thresholds.
    """
    judged = {}
    for rule, (needed, judgement) in JUDGEMENTS.items():
        threshold = getattr(rules, rule)
        if threshold is not None and all(name in values for name in needed):
            judged[rule] = judgement(values, threshold, rules)
    return judged


Judgement = Callable[[Mapping[str, float], float, Rules], Broken | None]


def _above(name: str) -> tuple[tuple[str, ...], Judgement]:
    return (name,), lambda values, limit, _: Broken(name, values[name], limit) if values[name] > limit else None


def _below(name: str) -> tuple[tuple[str, ...], Judgement]:
    return (name,), lambda values, limit, _: Broken(name, values[name], limit) if values[name] < limit else None


def _all_missing(values: Mapping[str, float], limit: float, rules: Rules) -> Broken | None:
    missing = values["rollout_is_missing_fraction"]
    return Broken("rollout_is_missing_fraction", missing, limit) if missing >= limit else None


def _missing(values: Mapping[str, float], limit: float, rules: Rules) -> Broken | None:
    missing = values["rollout_is_missing_fraction"]
    absent = rules.all_missing is not None and missing >= rules.all_missing
    return Broken("rollout_is_missing_fraction", missing, limit) if missing > limit and not absent else None


def _saturation(values: Mapping[str, float], limit: float, rules: Rules) -> Broken | None:
    """Downwards the weights of tokens are clamped and those of sequences are not: one of e^-20 is a single token's."""
    # Event files hold float32.
    margin = 1e-5
    if values["rollout_is_max"] >= math.exp(limit - margin):
        return Broken("rollout_is_max", values["rollout_is_max"], math.exp(limit), _longest(values, limit))
    if values["rollout_is_min"] < math.exp(-limit - margin):
        return Broken("rollout_is_min", values["rollout_is_min"], math.exp(-limit), _longest(values, limit))
    return None


def _longest(values: Mapping[str, float], limit: float) -> str:
    kl = abs(values.get("mismatch_kl", 0.0))
    return f"; at this KL it takes {limit / kl:.0f} tokens" if kl * limit > 0.0 else ""


def _constant_shift(values: Mapping[str, float], limit: float, rules: Rules) -> Broken | None:
    r"""Of tokens drawn from the rollout policy :math:`E[w] = 1`, and then the KL is K3 on average, however large.

    Log ratios of mean m and spread s, both small, have a KL of -m and a K3 of half :math:`m^2 + s^2`: a KL of many
    times K3 is a mean that outweighs the spread. No difference between two policies looks like that, only a fault in
    what one of them reports.
    """
    kl, k3 = values["mismatch_kl"], values["mismatch_k3_kl"]
    highest = max(rules.shift_floor, limit * k3)
    if abs(kl) <= highest:
        return None
    return Broken("mismatch_kl", kl, math.copysign(highest, kl), f" (K3 is {k3:.3g}; noise would make both equal)")


def _negative_kl(values: Mapping[str, float], limit: float, rules: Rules) -> Broken | None:
    """The same fault with a spread: tokens drawn from the rollout policy make a KL of K3, and this one is negative."""
    kl = values["mismatch_kl"]
    lowest = -max(rules.shift_floor, limit * values["mismatch_k3_kl"])
    shifted = rules.constant_shift is not None and _constant_shift(values, rules.constant_shift, rules) is not None
    return Broken("mismatch_kl", kl, lowest) if kl < lowest and not shifted else None


def _kl(values: Mapping[str, float], limit: float, rules: Rules) -> Broken | None:
    kl = values["mismatch_kl"]
    return Broken("mismatch_kl", kl, math.copysign(limit, kl)) if abs(kl) > limit else None


def _growing(values: Mapping[str, float], limit: float, rules: Rules) -> Broken | None:
    """Of three deciles at either end the middle one, which a single token that stands out does not move."""
    early, late = (sorted(third, key=values.__getitem__)[1] for third in (DECILES[:3], DECILES[-3:]))
    highest = max(rules.position_floor, limit * values[early])
    remark = f" (from {values[early]:.3g} nats in the first third to {values[late]:.3g} in the last)"
    return Broken(late, values[late], highest, remark) if values[late] > highest else None


KLS = ("mismatch_kl", "mismatch_k3_kl")
DECILES = tuple(f"mismatch_abs_log_ratio_decile_{decile:02d}" for decile in range(1, 11))
JUDGEMENTS: dict[str, tuple[tuple[str, ...], Judgement]] = {
    "all_missing": (("rollout_is_missing_fraction",), _all_missing),
    "missing_fraction": (("rollout_is_missing_fraction",), _missing),
    "saturation": (("rollout_is_min", "rollout_is_max"), _saturation),
    "constant_shift": (KLS, _constant_shift),
    "negative_kl": (KLS, _negative_kl),
    "mean_low": _below("rollout_is_mean"),
    "mean_high": _above("rollout_is_mean"),
    "catastrophic_fraction": _above("rollout_is_catastrophic_token_fraction"),
    "confident_disagreement": _above("mismatch_confident_disagreement_fraction"),
    "growing_with_position": (DECILES[:3] + DECILES[-3:], _growing),
    "veto_fraction": _above("rollout_is_veto_fraction"),
    "kl": (("mismatch_kl",), _kl),
    "chi2_token": _above("mismatch_chi2_token"),
    "eff_sample_size": _below("rollout_is_eff_sample_size"),
    "std": _above("rollout_is_std"),
    "masked_fraction": _above("rollout_is_masked_fraction"),
    "applied_eff_sample_size": _below("rollout_is_applied_eff_sample_size"),
}
"""Rule, the values that it needs, and the judgement; what may explain the rest comes first."""
