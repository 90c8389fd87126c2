"""Every value that a user may write: accepted, remarked on, or refused with the key, the value and what is allowed."""

import dataclasses
import math
import pickle
import warnings

import pytest

from lightning_rollout_is import RolloutISConfig

pytestmark = pytest.mark.plain

THRESHOLDS = ("rollout_is_threshold", "rollout_is_threshold_lower", "rollout_is_veto_threshold")
NUMBER = "allowed: a finite number above 0, or null"


def refusal(**settings: object) -> str:
    with pytest.raises(ValueError, match="allowed") as error:
        RolloutISConfig(**settings)
    message = str(error.value)
    assert "\n" not in message
    return message


def remark(**settings: object) -> str:
    with pytest.warns(UserWarning, match="rollout_is_") as remarks:
        RolloutISConfig(**settings)
    assert len(remarks) == 1
    return str(remarks[0].message)


def test_the_default_is_off():
    config = RolloutISConfig()
    assert dataclasses.astuple(config) == (None, False, None, "token", "truncate", 1e-4)
    assert not config.enabled
    assert not config.applied
    with pytest.raises(ValueError, match="rollout_is_threshold is null"):
        _ = config.upper


@pytest.mark.parametrize("key", THRESHOLDS)
@pytest.mark.parametrize(
    "value", [0, -1, -1e-4, math.inf, -math.inf, math.nan, "inf", "nan", "", "none", "two", [2.0], {}, True, False]
)
def test_a_threshold_is_a_finite_number_above_zero(key, value):
    assert refusal(**{"rollout_is_threshold": 2.0, key: value}) == f"{key} = {value!r} is not allowed; {NUMBER}"


@pytest.mark.parametrize("value", ["seq", "Token", "tokens", "", None, 1, ["token"]])
def test_an_unknown_level_names_the_levels(value):
    message = refusal(rollout_is_level=value)
    assert message == f"rollout_is_level = {value!r} is not allowed; allowed: token, sequence, geometric"


@pytest.mark.parametrize("value", ["clip", "Mask", "", None, 1, {}])
def test_an_unknown_mode_names_the_modes(value):
    assert refusal(rollout_is_mode=value) == f"rollout_is_mode = {value!r} is not allowed; allowed: truncate, mask"


@pytest.mark.parametrize("value", [1, 0, 2.0, "yes", "", None, []])
def test_the_switch_is_a_boolean(value):
    assert refusal(rollout_is=value) == f"rollout_is = {value!r} is not allowed; allowed: true, false"


@pytest.mark.parametrize("settings", [(2.0, 3.0), (1.1, 1.1000001)])
def test_bounds_that_reject_everything_are_refused(settings):
    upper, lower = settings
    message = refusal(rollout_is_threshold=upper, rollout_is_threshold_lower=lower, rollout_is_mode="mask")
    assert f"rollout_is_threshold_lower = {lower:g} is above rollout_is_threshold = {upper:g}" in message
    assert message.endswith("allowed: 0 < lower <= upper")


def test_a_threshold_under_one_needs_its_own_lower_bound():
    message = refusal(rollout_is_threshold=0.5)
    assert "rollout_is_threshold_lower = 2 (the default, 1 / upper) is above rollout_is_threshold = 0.5" in message


def test_equal_bounds_are_allowed():
    with pytest.warns(UserWarning, match="recommended"):
        config = RolloutISConfig(rollout_is_threshold=1.0, rollout_is_threshold_lower=1.0, rollout_is_mode="mask")
    assert config.lower == config.upper == 1.0


@pytest.mark.parametrize(("text", "number"), [("2", 2.0), (" 2.5 ", 2.5), (2, 2.0), ("2e0", 2.0)])
def test_numbers_written_as_text_become_numbers(text, number):
    config = RolloutISConfig(rollout_is_threshold=text, rollout_is_threshold_lower="5e-1", rollout_is_mode="mask")
    assert (config.upper, config.lower) == (number, 0.5)
    assert type(config.upper) is float


def test_a_veto_written_as_text_is_compared_as_a_number():
    assert RolloutISConfig(rollout_is_threshold=2.0, rollout_is_veto_threshold="1e-4").veto == 1e-4
    assert "rollout_is_veto_threshold = 2" in remark(rollout_is_threshold=2.0, rollout_is_veto_threshold="2")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("TRUE", True)])
def test_booleans_written_as_text_become_booleans(text, value):
    assert RolloutISConfig(rollout_is_threshold=2.0, rollout_is=text).rollout_is is value


@pytest.mark.parametrize(
    ("level", "low", "high"), [("token", 1.5, 5.0), ("sequence", 2.0, 10.0), ("geometric", 1.0002, 1.001)]
)
def test_the_recommended_range_is_closed_and_leaving_it_is_a_remark(level, low, high):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for threshold in (low, (low + high) / 2, high):
            RolloutISConfig(rollout_is_threshold=threshold, rollout_is_level=level)
    for threshold in (1.0 + (low - 1.0) * 0.99, high * 1.01):
        message = remark(rollout_is_threshold=threshold, rollout_is_level=level)
        assert f"rollout_is_threshold = {threshold:g} is outside the range recommended" in message
        assert f"level {level!r}, {low:g} to {high:g}" in message


def test_an_interval_without_one_is_a_remark():
    message = remark(rollout_is_threshold=2.0, rollout_is_threshold_lower=1.5, rollout_is_mode="mask")
    assert "[1.5, 2]" in message
    assert "does not contain 1" in message


def test_a_lower_threshold_without_effect_is_a_remark():
    message = remark(rollout_is_threshold=2.0, rollout_is_threshold_lower=0.5, rollout_is_mode="truncate")
    assert "rollout_is_threshold_lower = 0.5 bounds no weight in mode 'truncate'" in message


def test_a_correction_that_is_off_is_a_remark():
    assert "rollout_is_threshold is null" in remark(rollout_is=True)


@pytest.mark.parametrize("veto", [1.0, 2.0])
def test_a_veto_that_rejects_everything_is_a_remark(veto):
    assert f"rollout_is_veto_threshold = {veto:g}" in remark(rollout_is_threshold=2.0, rollout_is_veto_threshold=veto)


def test_null_turns_the_veto_off():
    assert RolloutISConfig(rollout_is_threshold=2.0, rollout_is_veto_threshold=None).veto is None


@pytest.mark.parametrize("applied", [True, False])
def test_measuring_and_applying_are_two_things(applied):
    config = RolloutISConfig(rollout_is_threshold=4.0, rollout_is=applied)
    assert (config.enabled, config.applied) == (True, applied)
    assert (config.upper, config.lower) == (4.0, 0.25)


def test_a_config_is_a_value():
    config = RolloutISConfig(rollout_is_threshold=2.0)
    assert pickle.loads(pickle.dumps(config)) == config
    assert len({config, RolloutISConfig(rollout_is_threshold="2.0")}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.rollout_is_threshold = 3.0
