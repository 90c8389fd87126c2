"""The thresholds of health, checked once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

LARGEST = {
    "all_missing": 1.0,
    "missing_fraction": 1.0,
    "veto_fraction": 1.0,
    "catastrophic_fraction": 1.0,
    "masked_fraction": 1.0,
    "confident_disagreement": 1.0,
    "eff_sample_size": 1.0,
    "applied_eff_sample_size": 1.0,
    "falling_eff_sample_size": 1.0,
    "saturation": 20.0,
}
"""What a threshold can be at most for its rule to mean anything; the others are finite."""
COUNTS = frozenset({"unchanged", "window", "patience", "recovery"})
"""Fields that count points; of these, ``unchanged`` alone is a rule."""
ALWAYS = frozenset({"window", "patience", "recovery", "shift_floor", "jump_floor", "position_floor"})
"""Fields that are no rule of their own, and have to be there."""


@dataclass(frozen=True)
class Rules:
    """When a run counts as unhealthy. A rule is named after the field of its threshold; ``None`` turns it off.

    Args:
        all_missing: Holds if at least this fraction of the valid tokens has no log-prob: nothing is corrected at all.
        missing_fraction: Holds if more than this fraction has none.
        unchanged: Holds if every weight has been exactly 1 for this many points.
        saturation: Holds if a raw log weight has run into this many nats, either way; 20 is where weights are clamped.
        mean_low: Holds if the mean weight is below.
        mean_high: Holds if the mean weight is above.
        constant_shift: Holds if the KL, either way, is beyond this many times K3, and beyond ``shift_floor``.
        negative_kl: Holds if the KL is below minus this many times K3, and below minus ``shift_floor``.
        eff_sample_size: Holds if the effective sample size is below. With weights clamped to [lower, upper] it is
            never under ``4 lower upper / (lower + upper)^2``, which for bounds of 0.5 and 2 is 0.64.
        std: Holds if the standard deviation of the clamped weights is above; it is never over ``(upper - lower) / 2``.
        kl: Holds if the KL is beyond, either way.
        confident_disagreement: Holds if on more than this fraction of the tokens the engine was sure (a probability of
            a half or more) and the trainer is more than 2 nats less so.
        growing_with_position: Holds if the mean of the log ratios' sizes is in the last third of the responses more
            than this many times what it is in the first, and beyond ``position_floor``.
        chi2_token: Holds if the chi-square divergence of the raw token weights is above.
        applied_eff_sample_size: Holds if the effective sample size of the weights that multiply the loss is below. A
            weight near 0 and one that bounds or veto have made 0 counts as what it is, which ``eff_sample_size`` does
            not see.
        veto_fraction: Holds if more than this fraction of the sequences is vetoed.
        catastrophic_fraction: Holds if more than this fraction of the tokens is under the veto threshold.
        masked_fraction: Holds if the bounds mask more than this fraction of the tokens.
        falling_eff_sample_size: Holds if the effective sample size has fallen by more than this fraction of itself
            within ``window`` points.
        jump: Holds if K3 is more than this many times its running median, and beyond ``jump_floor``.
        shift_floor: KL, nats, up to which ``constant_shift`` and ``negative_kl`` say nothing.
        jump_floor: K3, nats, up to which ``jump`` says nothing.
        position_floor: Mean size of a log ratio, nats, up to which ``growing_with_position`` says nothing. Normally
            distributed log ratios of 0.025 have the K3 of 5e-4 up to which a run is healthy.
        window: Points over which ``falling_eff_sample_size`` and ``jump`` look back, 4 or more.
        patience: Points in a row for which a rule must hold before its episode begins.
        recovery: Points in a row for which it must not hold before the episode ends.

    Raises:
        ValueError: A value is not allowed. The message names the field, the value and what is allowed.

    Example:
        >>> Rules(kl=0.05, jump=None).kl
        0.05
    """

    all_missing: float | None = 1.0
    missing_fraction: float | None = 1e-4
    unchanged: int | None = 20
    saturation: float | None = 20.0
    mean_low: float | None = 0.5
    mean_high: float | None = 2.0
    constant_shift: float | None = 3.0
    negative_kl: float | None = 0.5
    eff_sample_size: float | None = 0.3
    std: float | None = 1.0
    kl: float | None = 0.1
    confident_disagreement: float | None = 2e-3
    growing_with_position: float | None = 3.0
    chi2_token: float | None = 1.0
    applied_eff_sample_size: float | None = 0.3
    veto_fraction: float | None = 0.1
    catastrophic_fraction: float | None = 0.01
    masked_fraction: float | None = 0.3
    falling_eff_sample_size: float | None = 0.2
    jump: float | None = 10.0
    shift_floor: float = 0.01
    jump_floor: float = 0.01
    position_floor: float = 0.025
    window: int = 40
    patience: int = 1
    recovery: int = 10

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _checked(field.name, getattr(self, field.name)))
        if self.mean_low is not None and self.mean_high is not None and self.mean_low >= self.mean_high:
            raise ValueError(
                f"mean_low = {self.mean_low:g} is not below mean_high = {self.mean_high:g}, so every mean would be "
                "unhealthy; allowed: mean_low < mean_high"
            )

    @classmethod
    def from_mapping(cls, mapping: Mapping[Any, Any]) -> Rules:
        """Read thresholds from a dict or an OmegaConf ``DictConfig``; what is absent has its default.

        Raises:
            ValueError: An unknown key, with the nearest known one as a suggestion, or a value that is not allowed.

        Example:
            >>> Rules.from_mapping({"kl": "0.2", "std": None}).kl
            0.2
            >>> Rules.from_mapping({"mean_hihg": 3.0})
            Traceback (most recent call last):
            ValueError: unknown rule 'mean_hihg', did you mean 'mean_high'?; allowed: all_missing, ...
        """
        if not isinstance(mapping, Mapping):
            raise ValueError(f"Rules are read from a mapping, not from {type(mapping).__name__}: {mapping!r}")
        known = [field.name for field in fields(cls)]
        given = {str(key): mapping[key] for key in mapping}
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                meant = f", did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"unknown rule {key!r}{meant}; allowed: {', '.join(known)}")
        return cls(**given)


def _checked(name: str, value: Any) -> float | int | None:
    if value is None and name not in ALWAYS:
        return None
    number = _number(value)
    if number is None or not _within(name, number):
        raise ValueError(f"{name} = {value!r} is not allowed; allowed: {_allowed(name)}")
    return int(number) if name in COUNTS else number


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _within(name: str, number: float) -> bool:
    if not math.isfinite(number):
        return False
    if name in COUNTS:
        return number == int(number) and number >= _least(name)
    positive = number > 0.0 or (number == 0.0 and name == "missing_fraction")
    return positive and number <= LARGEST.get(name, math.inf)


def _least(name: str) -> int:
    return 4 if name == "window" else 1


def _allowed(name: str) -> str:
    if name in COUNTS:
        kind = f"an integer of {_least(name)} or more"
    elif name in LARGEST:
        kind = f"a number {'from' if name == 'missing_fraction' else 'above'} 0 to {LARGEST[name]:g}"
    else:
        kind = "a finite number above 0"
    return kind if name in ALWAYS else f"{kind}, or null"
