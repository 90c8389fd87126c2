"""Curves for the eye: where a value stops being healthy, and how far chance alone moves it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from lightning_rollout_is.healthy_ranges import RANGES

Values = Mapping[str, float]
"""Statistics by name without prefix."""

SPREAD = math.sqrt(2 * RANGES["mismatch_k3_kl"].healthy[1])
"""Standard deviation of the log ratio at which K3 stops being healthy: for small ones K3 is half their variance."""
P99 = 2.326 * SPREAD
"""98% of log ratios of that spread are within this of 0, if they are normal."""
MEAN_DISTANCE = math.sqrt(2 / math.pi) * SPREAD
"""Mean of their absolute values."""


class Limit(NamedTuple):
    """A curve that is drawn beside that of a statistic."""

    beside: str
    """Written wherever this statistic is: TensorBoard refuses a band whose three curves have different steps."""
    at: Callable[[Values], float]


def _always(value: float) -> Callable[[Values], float]:
    return lambda values: value


def _kl_beyond_chance(sign: float) -> Callable[[Values], float]:
    def at(values: Values) -> float:
        error = values.get("mismatch_kl_stderr", math.nan)
        return values["mismatch_kl"] + sign * 2.0 * (error if math.isfinite(error) else 0.0)

    return at


def _ends(metric: str, low: float, high: float, word: str) -> dict[str, Limit]:
    ends = {"low": low, "high": high}
    return {
        f"{metric}_{word}_{end}": Limit(metric, _always(value)) for end, value in ends.items() if math.isfinite(value)
    }


LIMITS: dict[str, Limit] = {
    **_ends("mismatch_k3_kl", *RANGES["mismatch_k3_kl"].healthy, "healthy"),
    **_ends("mismatch_kl", *RANGES["mismatch_kl"].healthy, "healthy"),
    "mismatch_kl_ideal": Limit("mismatch_kl", _always(0.0)),
    "mismatch_kl_minus_2_stderr": Limit("mismatch_kl", _kl_beyond_chance(-1.0)),
    "mismatch_kl_plus_2_stderr": Limit("mismatch_kl", _kl_beyond_chance(1.0)),
    **_ends("rollout_is_mean", *RANGES["rollout_is_mean"].warning, "warning"),
    **_ends("rollout_is_eff_sample_size", *RANGES["rollout_is_eff_sample_size"].healthy, "healthy"),
    **_ends("rollout_is_eff_sample_size", *RANGES["rollout_is_eff_sample_size"].warning, "warning"),
    **_ends("mismatch_ppl_ratio", *RANGES["mismatch_ppl_ratio"].healthy, "healthy"),
    **_ends("rollout_is_veto_fraction", *RANGES["rollout_is_veto_fraction"].warning, "warning"),
    "mismatch_log_ratio_ideal": Limit("mismatch_log_ratio_p50", _always(0.0)),
    **_ends("mismatch_log_ratio_p50", -P99, P99, "healthy"),
    **_ends("mismatch_abs_log_ratio_decile_01", -math.inf, MEAN_DISTANCE, "healthy"),
}
"""By name without prefix."""


def limits_prefix(prefix: str) -> str:
    """What the names of these curves begin with: a group of their own, after that of the statistics.

    Example:
        >>> limits_prefix("mismatch/"), limits_prefix("")
        ('mismatch_limits/', 'limits/')
    """
    group = prefix.rstrip("/")
    return f"{group}_limits/" if group else "limits/"


def limits_beside(values: Values, prefix: str) -> dict[str, float]:
    """The curves that belong to a point.

    Args:
        values: Statistics by name without prefix, those that are not defined too.
        prefix: What their keys begin with.

    Returns:
        Values by key, beside every statistic that is defined.

    Example:
        >>> limits_beside({"mismatch_k3_kl": 1e-3, "mismatch_kl": float("nan")}, "is/")
        {'is_limits/mismatch_k3_kl_healthy_high': 0.0005}
    """
    before = limits_prefix(prefix)
    defined = {name for name, value in values.items() if math.isfinite(value)}
    return {f"{before}{name}": limit.at(values) for name, limit in LIMITS.items() if limit.beside in defined}
