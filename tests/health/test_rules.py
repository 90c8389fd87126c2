"""Thresholds: the specification's by default, checked, and the same in the shipped YAML."""

from dataclasses import asdict, fields

import pytest
import yaml
from omegaconf import OmegaConf

from lightning_rollout_is.health import Rules
from lightning_rollout_is.hydra_store import conf_directory

SPECIFIED = {
    "mean_low": 0.5,
    "mean_high": 2.0,
    "eff_sample_size": 0.3,
    "veto_fraction": 0.1,
    "std": 1.0,
    "kl": 0.1,
    "catastrophic_fraction": 0.01,
    "masked_fraction": 0.3,
}
NO_RULE = {"window", "patience", "recovery", "shift_floor", "jump_floor", "position_floor"}


def test_the_defaults_are_those_of_the_specification():
    assert {name: getattr(Rules(), name) for name in SPECIFIED} == SPECIFIED


def test_the_yaml_spells_out_every_default():
    written = yaml.safe_load((conf_directory() / "callbacks" / "health.yaml").read_text())["health"]["rules"]
    assert written == asdict(Rules())
    assert list(written) == [field.name for field in fields(Rules)]


@pytest.mark.parametrize("name", sorted({field.name for field in fields(Rules)} - NO_RULE))
def test_each_rule_can_be_turned_off(name):
    assert getattr(Rules.from_mapping({name: None}), name) is None


@pytest.mark.parametrize("name", sorted(NO_RULE))
def test_what_is_no_rule_has_to_be_there(name):
    with pytest.raises(ValueError, match=rf"{name} = None is not allowed; allowed: an? [a-z0-9 ]+$"):
        Rules(**{name: None})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("kl", 0.0, "a finite number above 0, or null"),
        ("kl", -0.1, "a finite number above 0, or null"),
        ("kl", float("nan"), "a finite number above 0, or null"),
        ("std", float("inf"), "a finite number above 0, or null"),
        ("kl", True, "a finite number above 0, or null"),
        ("kl", "much", "a finite number above 0, or null"),
        ("kl", [0.1], "a finite number above 0, or null"),
        ("veto_fraction", 1.5, "a number above 0 to 1, or null"),
        ("confident_disagreement", 1.5, "a number above 0 to 1, or null"),
        ("applied_eff_sample_size", 1.5, "a number above 0 to 1, or null"),
        ("growing_with_position", 0.0, "a finite number above 0, or null"),
        ("position_floor", 0.0, "a finite number above 0"),
        ("eff_sample_size", 0.0, "a number above 0 to 1, or null"),
        ("missing_fraction", -0.1, "a number from 0 to 1, or null"),
        ("saturation", 21.0, "a number above 0 to 20, or null"),
        ("unchanged", 0, "an integer of 1 or more, or null"),
        ("unchanged", 2.5, "an integer of 1 or more, or null"),
        ("window", 3, "an integer of 4 or more"),
        ("patience", 0, "an integer of 1 or more"),
        ("recovery", float("inf"), "an integer of 1 or more"),
        ("jump_floor", 0.0, "a finite number above 0"),
    ],
)
def test_a_refused_value_is_named_with_what_is_allowed(name, value, allowed):
    with pytest.raises(ValueError, match=name) as error:
        Rules(**{name: value})
    assert str(error.value) == f"{name} = {value!r} is not allowed; allowed: {allowed}"


def test_values_at_the_edge_are_allowed():
    rules = Rules(missing_fraction=0.0, all_missing=1.0, saturation=20.0, window=4, patience=1)
    assert (rules.missing_fraction, rules.all_missing, rules.saturation, rules.window) == (0.0, 1.0, 20.0, 4)


@pytest.mark.parametrize("low", [2.0, 3.0])
def test_means_that_leave_no_room_are_refused(low):
    with pytest.raises(ValueError, match=rf"mean_low = {low:g} is not below mean_high = 2"):
        Rules(mean_low=low)


def test_one_bound_of_the_mean_may_be_off():
    assert Rules(mean_low=3.0, mean_high=None).mean_low == 3.0
    assert Rules(mean_low=None, mean_high=0.1).mean_high == 0.1


def test_read_from_hydra():
    rules = Rules.from_mapping(OmegaConf.create({"kl": "2e-1", "unchanged": "5", "std": None}))
    assert (rules.kl, rules.unchanged, rules.std) == (0.2, 5, None)
    assert type(rules.unchanged) is int
    assert rules.veto_fraction == 0.1


@pytest.mark.parametrize(("typo", "meant"), [("kll", "kl"), ("veto_fractoin", "veto_fraction")])
def test_a_typo_gets_a_suggestion(typo, meant):
    with pytest.raises(ValueError, match=f"unknown rule '{typo}', did you mean '{meant}'\\?; allowed: all_missing, "):
        Rules.from_mapping({typo: 0.1})


def test_something_else_than_a_mapping_is_refused():
    with pytest.raises(ValueError, match="Rules are read from a mapping, not from list"):
        Rules.from_mapping(["kl"])
