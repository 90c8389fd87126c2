"""Settings that silently do nothing get one remark each, which names the key, its value and the remedy."""

import warnings
from typing import Any

import pytest

from lightning_rollout_is import RolloutISConfig

WITHOUT_EFFECT: dict[str, tuple[dict[str, Any], str]] = {
    "a correction without a threshold": ({"rollout_is": True}, "rollout_is is true and rollout_is_threshold is null"),
    "a lower threshold without an upper one": (
        {"rollout_is_threshold_lower": 0.5},
        "rollout_is_threshold_lower = 0.5 has no effect while rollout_is_threshold is null",
    ),
    "a lower threshold in truncate mode": (
        {"rollout_is_threshold": 2.0, "rollout_is_threshold_lower": 0.5},
        "rollout_is_threshold_lower = 0.5 bounds no weight in mode 'truncate'",
    ),
}
IN_EFFECT: tuple[dict[str, Any], ...] = (
    {},
    {"rollout_is_threshold": None, "rollout_is_level": "sequence", "rollout_is_mode": "mask"},
    {"rollout_is_threshold": 2.0},
    {"rollout_is_threshold": 2.0, "rollout_is_threshold_lower": 0.5, "rollout_is_mode": "mask"},
)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_without_effect(name: str) -> None:
    settings, message = WITHOUT_EFFECT[name]
    with pytest.warns(UserWarning, match="rollout_is") as remarks:
        RolloutISConfig(**settings)
    assert len(remarks) == 1
    assert message in str(remarks[0].message)


@pytest.mark.parametrize("settings", IN_EFFECT, ids=str)
def test_in_effect_or_plainly_off(settings: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RolloutISConfig(**settings)
