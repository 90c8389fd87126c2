"""One point on its own: each rule just under and just over its threshold, and the words that go with it."""

import math
from dataclasses import fields

import numpy
import pytest
import torch

from lightning_rollout_is import RolloutISConfig
from lightning_rollout_is.health import Rules, check
from lightning_rollout_is.health.advice import ADVICE
from tests.health.points import ALL_MISSING, HEALTHY, SAME_TENSOR, point, profile, rules_of
from tests.health.test_rules import NO_RULE

LARGEST = math.exp(20.0)
# rule, metric, the last value that is healthy, the first that is not, threshold, other values of the point
EDGES = [
    ("mean_low", "rollout_is_mean", 0.5, 0.4999, 0.5, {}),
    ("mean_high", "rollout_is_mean", 2.0, 2.0001, 2.0, {}),
    ("eff_sample_size", "rollout_is_eff_sample_size", 0.3, 0.2999, 0.3, {}),
    ("std", "rollout_is_std", 1.0, 1.0001, 1.0, {}),
    ("veto_fraction", "rollout_is_veto_fraction", 0.1, 0.1001, 0.1, {}),
    ("catastrophic_fraction", "rollout_is_catastrophic_token_fraction", 0.01, 0.0101, 0.01, {}),
    ("masked_fraction", "rollout_is_masked_fraction", 0.3, 0.3001, 0.3, {}),
    ("kl", "mismatch_kl", 0.1, 0.1001, 0.1, {"mismatch_k3_kl": 0.12}),
    ("kl", "mismatch_kl", -0.1, -0.1001, -0.1, {"mismatch_k3_kl": 0.5}),
    ("chi2_token", "mismatch_chi2_token", 1.0, 1.0001, 1.0, {}),
    ("confident_disagreement", "mismatch_confident_disagreement_fraction", 0.002, 0.00201, 0.002, {}),
    ("applied_eff_sample_size", "rollout_is_applied_eff_sample_size", 0.3, 0.2999, 0.3, {}),
    ("missing_fraction", "rollout_is_missing_fraction", 1e-4, 1.01e-4, 1e-4, {}),
    ("missing_fraction", "rollout_is_missing_fraction", 0.0, 0.9999, 1e-4, {}),
    ("all_missing", "rollout_is_missing_fraction", 0.0, 1.0, 1.0, {}),
    ("saturation", "rollout_is_max", LARGEST * 0.999, LARGEST, LARGEST, {}),
    # A token's weight is clamped at exp(-20), that of a sequence is not.
    ("saturation", "rollout_is_min", 1 / LARGEST, 0.999 / LARGEST, 1 / LARGEST, {}),
    ("saturation", "rollout_is_min", 1.0, 0.0, 1 / LARGEST, {}),
    ("constant_shift", "mismatch_kl", 0.03, 0.0301, 0.03, {"mismatch_k3_kl": 0.01}),
    ("constant_shift", "mismatch_kl", -0.03, -0.0301, -0.03, {"mismatch_k3_kl": 0.01, "rule": {"negative_kl": None}}),
    ("constant_shift", "mismatch_kl", 0.01, 0.0101, 0.01, {"mismatch_k3_kl": 0.0}),
    ("negative_kl", "mismatch_kl", -0.02, -0.0201, -0.02, {"mismatch_k3_kl": 0.04}),
    ("negative_kl", "mismatch_kl", -0.01, -0.0101, -0.01, {"mismatch_k3_kl": 0.005}),
]


def test_a_healthy_point_has_no_finding():
    assert check(point()) == []


@pytest.mark.parametrize(("rule", "metric", "healthy", "sick", "threshold", "others"), EDGES)
def test_a_rule_holds_beyond_its_threshold_alone(rule, metric, healthy, sick, threshold, others):
    rules = Rules(**others.get("rule", {}))
    others = {name: value for name, value in others.items() if name != "rule"}
    assert check(point(**{**others, metric: healthy}), rules) == []
    (finding,) = check(point(**{**others, metric: sick}), rules)
    assert (finding.rule, finding.metric, finding.value, finding.since) == (rule, f"mismatch/{metric}", sick, 0)
    assert finding.threshold == pytest.approx(threshold)


@pytest.mark.parametrize(("rule", "metric", "healthy", "sick", "threshold", "others"), EDGES)
def test_a_rule_that_is_off_says_nothing(rule, metric, healthy, sick, threshold, others):
    rules = Rules(**{**others.get("rule", {}), rule: None})
    others = {name: value for name, value in others.items() if name != "rule"}
    assert rule not in rules_of(check(point(**{**others, metric: sick}), rules))


@pytest.mark.parametrize(
    ("name", "value", "metric", "healthy", "sick"),
    [
        ("kl", 0.4, "mismatch_log_ppl_diff", None, None),
        ("mean_high", 1.5, "rollout_is_mean", 1.5, 1.51),
        ("veto_fraction", 0.02, "rollout_is_veto_fraction", 0.02, 0.021),
        ("saturation", 5.0, "rollout_is_max", math.exp(4.99), math.exp(5.0)),
        ("saturation", 5.0, "rollout_is_min", math.exp(-4.99), math.exp(-5.01)),
    ],
)
def test_thresholds_are_those_given(name, value, metric, healthy, sick):
    rules = Rules(**{name: value})
    if healthy is None:
        assert check(point(mismatch_kl=0.39, mismatch_k3_kl=0.4), rules) == []
        return
    assert check(point(**{metric: healthy}), rules) == []
    assert rules_of(check(point(**{metric: sick}), rules)) == [name]


def test_the_largest_float32_weight_of_an_event_file_counts_as_clamped():
    assert rules_of(check(point(rollout_is_max=float(numpy.float32(LARGEST))))) == ["saturation"]
    assert check(point(rollout_is_min=float(numpy.float32(1 / LARGEST)))) == []


def test_all_missing_is_one_finding():
    assert rules_of(check(point(ALL_MISSING))) == ["all_missing"]
    assert rules_of(check(point(ALL_MISSING), Rules(all_missing=None))) == ["missing_fraction"]


FLAT, STEEP = (0.05,) * 10, (0.05,) * 7 + (0.16,) * 3


@pytest.mark.parametrize(
    ("sizes", "grows"),
    [
        (FLAT, False),
        (STEEP, True),
        (STEEP[::-1], False),
        ((0.05,) * 7 + (0.1499,) * 3, False),
        ((0.05,) * 7 + (0.1501,) * 3, True),
        ((0.05,) * 9 + (20.0,), False),  # one token that stands out
        ((0.05,) * 8 + (0.16, 0.17), True),
        ((0.0, 0.0, 0.5, *STEEP[3:]), True),
        ((0.0, 0.2, 0.5, *STEEP[3:]), False),
        # No token of an engine in full precision lies that far off, whatever the shape.
        ((1e-8,) * 7 + (1e-4,) * 3, False),
        ((0.0,) * 7 + (0.0249,) * 3, False),
        ((0.0,) * 7 + (0.0251,) * 3, True),
    ],
)
def test_growth_is_told_by_the_middle_of_either_third(sizes, grows):
    assert rules_of(check(point(**profile(*sizes)))) == (["growing_with_position"] if grows else [])


def test_growth_names_a_curve_that_has_grown_and_both_ends():
    (finding,) = check(point(**profile(0.02, 0.04, 0.03, *FLAT[3:7], 0.3, 0.5, 0.4)))
    assert (finding.metric, finding.value) == ("mismatch/mismatch_abs_log_ratio_decile_10", 0.4)
    assert finding.threshold == pytest.approx(0.09)
    assert "(from 0.03 nats in the first third to 0.4 in the last)" in finding.message


def test_growth_has_thresholds_of_its_own():
    steep = point(**profile(*STEEP))
    assert check(steep, Rules(growing_with_position=None)) == []
    assert check(steep, Rules(growing_with_position=4.0)) == []
    assert check(steep, Rules(position_floor=0.2)) == []


@pytest.mark.parametrize("decile", [1, 2, 3, 8, 9, 10])
def test_a_profile_with_a_gap_says_nothing(decile):
    """Responses of fewer than ten tokens leave deciles empty."""
    gap = {f"mismatch_abs_log_ratio_decile_{decile:02d}": math.nan}
    assert check(point(**{**profile(*STEEP), **gap})) == []


def test_a_shift_is_not_told_twice():
    assert rules_of(check(point(mismatch_kl=-0.05, mismatch_k3_kl=0.001))) == ["constant_shift"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_says_nothing(value):
    assert check(point(dict.fromkeys(HEALTHY, value))) == []


def test_a_value_that_is_absent_says_nothing():
    for name in HEALTHY:
        left = {key: value for key, value in HEALTHY.items() if key != name}
        assert check(point(left)) == []
    assert check({}) == []


def test_other_scalars_are_left_alone():
    others = {"reward": 0.1, "mismatch_kl": 9.0, "val/mismatch_kl": 9.0, "text": "no number", "mismatch/custom": 7.0}
    assert check({**point(), **others}) == []


@pytest.mark.parametrize("prefix", ["", "rollout/", "mismatch/mismatch_"])
def test_another_prefix(prefix):
    (finding,) = check(point(prefix=prefix, rollout_is_veto_fraction=0.5), prefix=prefix)
    assert finding.metric == f"{prefix}rollout_is_veto_fraction"


@pytest.mark.parametrize("number", [torch.tensor, numpy.float32])
def test_scalars_may_be_tensors(number):
    (finding,) = check({name: number(value) for name, value in point(rollout_is_mean=3.0).items()})
    assert type(finding.value) is float


def test_what_may_explain_the_rest_comes_first():
    sick = point(
        SAME_TENSOR,
        rollout_is_missing_fraction=0.5,
        mismatch_kl=2.0,
        mismatch_k3_kl=0.1,
        rollout_is_mean=0.1,
        rollout_is_eff_sample_size=0.1,
    )
    found = ["missing_fraction", "constant_shift", "mean_low", "kl", "eff_sample_size"]
    assert rules_of(check(sick)) == found


def test_every_rule_has_words():
    assert set(ADVICE) == {field.name for field in fields(Rules)} - NO_RULE
    for advice in ADVICE.values():
        assert len(advice.meaning) > 20
        assert len(advice.causes) >= 2
        assert len(advice.remedy) > 20
        assert not advice.remedy.endswith(".")


# What is to be printed with each rule, the specification's remedies among it.
REMEDIES = {
    "std": ["rollout_is_level: geometric", "rollout_is_threshold", "policies are not too different"],
    "eff_sample_size": ["rollout_is_level: geometric", "rollout_is_threshold", "policies are not too different"],
    "veto_fraction": ["rollout_is_veto_threshold", "numeric faults in the log-prob computation", "same model"],
    "mean_low": ["calculate_log_probs: true", "systematic bias"],
    "mean_high": ["calculate_log_probs: true", "systematic bias"],
    "all_missing": ["actor_rollout_ref.rollout.calculate_log_probs: true"],
    "applied_eff_sample_size": ["rollout_is_mode: truncate", "rollout_is_threshold", "rollout_is_level: geometric"],
    "chi2_token": ["rollout_is_level: geometric", "rollout_is_threshold"],
    "confident_disagreement": ["algorithm.rollout_is_mode: mask", "token ids", "routing_replay: true"],
    "growing_with_position": ["kv_cache_dtype: auto", "rope_scaling", "data.max_response_length"],
    "masked_fraction": ["algorithm.rollout_is_threshold", "algorithm.rollout_is_mode: truncate"],
}


@pytest.mark.parametrize("rule", REMEDIES)
def test_remedies_name_what_to_set(rule):
    for words in REMEDIES[rule]:
        assert words in ADVICE[rule].remedy


def test_a_relaxed_veto_vetoes_less():
    """A sequence is vetoed if a token's ratio is under the threshold, so that a larger threshold vetoes more."""
    assert "1.0e-5 vetoes less" in ADVICE["veto_fraction"].remedy


@pytest.mark.parametrize("advice", ADVICE.values(), ids=ADVICE)
def test_lines_of_configuration_exist(advice):
    words = advice.remedy.replace(",", " ").replace(";", " ").replace(")", " ").replace("(", " ").split()
    named = [word for word in words if word.startswith("algorithm.")]
    keys = {field.name for field in fields(RolloutISConfig)}
    assert {word.removeprefix("algorithm.").rstrip(":") for word in named} <= keys


def test_all_of_it_in_one_paragraph():
    (finding,) = check(point(mismatch_kl=0.25, mismatch_k3_kl=0.2))
    said = finding.described()
    assert said.startswith("the two policies are far apart (mismatch/mismatch_kl = 0.25, threshold 0.1, since step 0).")
    assert all(f"({number}) {cause}" in said for number, cause in enumerate(finding.causes, start=1))
    assert said.endswith(f"What to do: {finding.remedy}.")


def test_the_length_at_which_sequences_saturate_is_named():
    (finding,) = check(point(rollout_is_max=LARGEST, mismatch_kl=0.04, mismatch_k3_kl=0.04))
    assert "at this KL it takes 500 tokens" in finding.message
    (finding,) = check(point(rollout_is_max=LARGEST, mismatch_kl=0.0))
    assert "at this KL" not in finding.message
