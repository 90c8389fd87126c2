"""What the user chooses, checked once, before anything is computed."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from lightning_rollout_is.choices import LEVELS, MODES

RECOMMENDED_THRESHOLDS = {"token": (1.5, 5.0), "sequence": (2.0, 10.0), "geometric": (1.0002, 1.001)}

# Neighbours that a verl `algorithm:` block may carry beside ours. They belong to the trainer and are left alone.
TRAINER_KEYS = frozenset(
    {
        "_target_",
        "adv_estimator",
        "gamma",
        "lam",
        "norm_adv_by_std_in_grpo",
        "use_kl_in_reward",
        "kl_penalty",
        "kl_ctrl",
        "use_pf_ppo",
        "pf_ppo",
        "filter_groups",
    }
)


@dataclass(frozen=True)
class RolloutISConfig:
    """Settings of rollout importance sampling, under the key names of verl's ``algorithm:`` block.

    Args:
        rollout_is_threshold: Upper threshold of a weight and main switch; ``None`` turns everything off.
        rollout_is: Multiply the weights into the loss. ``False`` only measures.
        rollout_is_threshold_lower: Lower threshold of a weight; ``None`` means ``1 / rollout_is_threshold``.
        rollout_is_level: ``"token"``, ``"sequence"`` or ``"geometric"``.
        rollout_is_mode: ``"truncate"`` or ``"mask"``.
        rollout_is_veto_threshold: A sequence with any token ratio under this gets weight 0; ``None`` turns it off.

    Raises:
        ValueError: A value is not allowed. The message names the key, the value and what is allowed.

    Warns:
        UserWarning: The threshold is outside the range recommended for its level, or a setting has no effect.

    Example:
        >>> config = RolloutISConfig(rollout_is_threshold=2.0, rollout_is=True)
        >>> config.upper, config.lower, config.applied
        (2.0, 0.5, True)
    """

    rollout_is_threshold: float | None = None
    rollout_is: bool = False
    rollout_is_threshold_lower: float | None = None
    rollout_is_level: str = "token"
    rollout_is_mode: str = "truncate"
    rollout_is_veto_threshold: float | None = 1e-4

    def __post_init__(self) -> None:
        for key in ("rollout_is_threshold", "rollout_is_threshold_lower", "rollout_is_veto_threshold"):
            object.__setattr__(self, key, _positive_or_none(key, getattr(self, key)))
        object.__setattr__(self, "rollout_is", _boolean("rollout_is", self.rollout_is))
        _require_choice("rollout_is_level", self.rollout_is_level, LEVELS)
        _require_choice("rollout_is_mode", self.rollout_is_mode, MODES)
        if self.enabled:
            self._require_ordered_bounds()
        for message in self._remarks():
            warnings.warn(message, UserWarning, stacklevel=4)

    @classmethod
    def of(cls, algorithm: RolloutISConfig | Mapping[Any, Any]) -> RolloutISConfig:
        """The configuration itself, or one read by :meth:`from_mapping`."""
        return algorithm if isinstance(algorithm, cls) else cls.from_mapping(cast(Mapping[Any, Any], algorithm))

    @classmethod
    def from_mapping(cls, mapping: Mapping[Any, Any]) -> RolloutISConfig:
        """Read an ``algorithm`` block, or a whole configuration that holds one.

        A whole configuration (one with a key ``algorithm``) must not say
        ``actor_rollout_ref.rollout.calculate_log_probs: false`` while a threshold is set.

        Args:
            mapping: A dict or an OmegaConf ``DictConfig``. Keys of verl's trainer beside ours are left alone.

        Raises:
            ValueError: An unknown key, with the nearest known one as a suggestion; a value that is not allowed; or
                rollout log-probs that are needed and switched off.

        Example:
            >>> RolloutISConfig.from_mapping({"rollout_is_threshold": "2.0", "rollout_is_mode": "mask"}).upper
            2.0
            >>> RolloutISConfig.from_mapping({"rollout_is_treshold": 2.0})
            Traceback (most recent call last):
            ValueError: unknown key 'rollout_is_treshold', did you mean 'rollout_is_threshold'?; allowed: ...
        """
        if not isinstance(mapping, Mapping):
            raise ValueError(
                f"a RolloutISConfig is read from a mapping, not from {type(mapping).__name__}: {mapping!r}"
            )
        if "algorithm" in mapping:
            config = cls.from_mapping(mapping["algorithm"] or {})
            _require_rollout_log_probs(config, mapping)
            return config
        known = [field.name for field in fields(cls)]
        given = {str(key): mapping[key] for key in mapping if key not in TRAINER_KEYS}
        for key in given:
            if key not in known:
                raise ValueError(f"unknown key {key!r}{_suggestion(key, known)}; allowed: {', '.join(known)}")
        return cls(**given)

    @property
    def enabled(self) -> bool:
        """Whether anything is computed."""
        return self.rollout_is_threshold is not None

    @property
    def applied(self) -> bool:
        """Whether the weights multiply the loss."""
        return self.enabled and self.rollout_is

    @property
    def upper(self) -> float:
        """Upper threshold of a weight."""
        if self.rollout_is_threshold is None:
            raise ValueError("rollout_is_threshold is null, which turns everything off: there is no upper threshold")
        return self.rollout_is_threshold

    @property
    def lower(self) -> float:
        """Lower threshold of a weight, ``1 / upper`` unless given."""
        lower = self.rollout_is_threshold_lower
        return 1.0 / self.upper if lower is None else lower

    @property
    def veto(self) -> float | None:
        """Veto threshold of a token's ratio, or ``None``."""
        return self.rollout_is_veto_threshold

    @property
    def weight_options(self) -> dict[str, Any]:
        """Keyword arguments of :func:`~lightning_rollout_is.functional.importance_weights`."""
        return {
            "level": self.rollout_is_level,
            "mode": self.rollout_is_mode,
            "upper": self.upper,
            "lower": self.lower,
            "veto": self.veto,
        }

    def _require_ordered_bounds(self) -> None:
        if self.lower <= self.upper:
            return
        default = self.rollout_is_threshold_lower is None
        raise ValueError(
            f"rollout_is_threshold_lower = {self.lower:g}{' (the default, 1 / upper)' if default else ''} is above "
            f"rollout_is_threshold = {self.upper:g}, so every weight would be rejected; allowed: 0 < lower <= upper"
        )

    def _remarks(self) -> list[str]:
        if not self.enabled:
            return self._remarks_when_off()
        remarks = []
        low, high = RECOMMENDED_THRESHOLDS[self.rollout_is_level]
        if not low <= self.upper <= high:
            remarks.append(
                f"rollout_is_threshold = {self.upper:g} is outside the range recommended for level "
                f"{self.rollout_is_level!r}, {low:g} to {high:g}"
            )
        if not self.lower <= 1.0 <= self.upper:
            remarks.append(
                f"the interval [{self.lower:g}, {self.upper:g}] of rollout_is_threshold_lower and "
                "rollout_is_threshold does not contain 1, the weight of a token without mismatch"
            )
        if self.rollout_is_mode == "truncate" and self.rollout_is_threshold_lower is not None:
            remarks.append(
                f"rollout_is_threshold_lower = {self.lower:g} bounds no weight in mode 'truncate', it only enters the "
                "metrics; set rollout_is_mode: mask to reject weights under it"
            )
        if self.veto is not None and self.veto >= 1.0:
            remarks.append(
                f"rollout_is_veto_threshold = {self.veto:g} is 1 or more, so almost every sequence is rejected; "
                "usual: 1e-4"
            )
        return remarks

    def _remarks_when_off(self) -> list[str]:
        remarks = []
        if self.rollout_is:
            remarks.append("rollout_is is true and rollout_is_threshold is null: nothing is corrected")
        if self.rollout_is_threshold_lower is not None:
            remarks.append(
                f"rollout_is_threshold_lower = {self.rollout_is_threshold_lower:g} has no effect while "
                "rollout_is_threshold is null, which turns everything off; set rollout_is_threshold too"
            )
        return remarks


def _positive_or_none(key: str, value: Any) -> float | None:
    if value is None:
        return None
    allowed = "a finite number above 0, or null"
    if isinstance(value, bool):
        raise ValueError(f"{key} = {value!r} is not allowed; allowed: {allowed}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{key} = {value!r} is not allowed; allowed: {allowed}") from None
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{key} = {value!r} is not allowed; allowed: {allowed}")
    return number


def _boolean(key: str, value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"{key} = {value!r} is not allowed; allowed: true, false")
    return value


def _require_choice(key: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{key} = {value!r} is not allowed; allowed: {', '.join(choices)}")


def _suggestion(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def _require_rollout_log_probs(config: RolloutISConfig, tree: Mapping[Any, Any]) -> None:
    rollout = cast(Mapping[str, Any], (tree.get("actor_rollout_ref") or {}).get("rollout") or {})
    if config.enabled and rollout.get("calculate_log_probs") is False:
        raise ValueError(
            f"algorithm.rollout_is_threshold = {config.upper:g} needs the rollout's log-probs, and "
            "actor_rollout_ref.rollout.calculate_log_probs = False; set it to true, or set the threshold to null"
        )
