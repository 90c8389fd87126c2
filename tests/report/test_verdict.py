"""One word for a run, and since when."""

import math

import pytest

from lightning_rollout_is.health import Rules, check
from lightning_rollout_is.health.advice import ADVICE
from lightning_rollout_is.healthy_ranges import RANGES
from lightning_rollout_is.report.verdict import RULE_OF, judge
from tests.report.written import DETAILS, SOUND, groups, run_of, verdict_of


def test_a_sound_run_is_healthy(tmp_path):
    verdict = verdict_of(tmp_path)
    assert verdict == ("healthy", ())
    assert verdict.since is None


def test_what_breaks_a_rule_at_the_end_is_unhealthy_since_it_began(tmp_path):
    verdict = verdict_of(tmp_path, length=100, rollout_is_eff_sample_size=lambda step: 0.9 if step < 60 else 0.2)
    problem = next(problem for problem in verdict.problems if problem.metric == "rollout_is_eff_sample_size")
    assert verdict.grade == problem.grade == "unhealthy"
    assert (problem.since, problem.lasting, problem.share) == (60, True, 0.4)
    assert "geometric" in problem.remedy
    assert problem.causes
    assert "since step 60, at 40% of the points" in problem.headline()


def test_the_worst_value_of_a_rule_is_told(tmp_path):
    verdict = verdict_of(tmp_path, rollout_is_veto_fraction=lambda step: 0.7 if step == 20 else 0.2)
    assert verdict.problems[0].numbers == "mismatch/rollout_is_veto_fraction 0.7 at worst, threshold 0.1"


def test_a_rule_that_broke_for_a_moment_is_to_be_watched(tmp_path):
    verdict = verdict_of(tmp_path, length=100, rollout_is_veto_fraction=lambda step: 0.5 if step == 40 else 0.0)
    (problem,) = verdict.problems
    assert verdict.grade == "watch"
    assert verdict.since == 40
    assert problem.when() == "first at step 40, at 1% of the points, over by the end"


def test_a_rule_that_broke_often_is_unhealthy_though_it_is_over(tmp_path):
    verdict = verdict_of(tmp_path, length=100, rollout_is_veto_fraction=lambda step: 0.5 if step < 10 else 0.0)
    assert verdict.grade == "unhealthy"
    assert not verdict.problems[0].lasting


@pytest.mark.parametrize(
    ("without", "lasting", "since"),
    [
        ({99}, True, 50),
        ({97, 98}, True, 50),
        ({98, 99}, True, 50),
        ({97, 98, 99}, False, 50),
        ({90, 91, 92, 93, 94, 99}, False, 50),
        ({90, 91, 92, 93, 94}, True, 50),
        (set(range(70, 95)), True, 95),
    ],
)
def test_what_comes_and_goes_has_not_ended_with_a_point_without_it(tmp_path, without, lasting, since):
    sick = set(range(50, 100)) - without
    verdict = verdict_of(tmp_path, length=100, rollout_is_veto_fraction=lambda step: 0.5 if step in sick else 0.0)
    (problem,) = verdict.problems
    assert (problem.lasting, problem.since, problem.first) == (lasting, since, 50)


def test_a_relapse_is_told_with_its_first_time(tmp_path):
    relapse = {5, *range(90, 100)}
    verdict = verdict_of(tmp_path, length=100, rollout_is_veto_fraction=lambda step: 0.5 if step in relapse else 0.0)
    assert verdict.since == 90
    assert "since step 90 and before, from step 5 on, at 11% of the points" in verdict.headline()


def test_a_value_outside_its_healthy_range_is_to_be_watched(tmp_path):
    verdict = verdict_of(tmp_path, mismatch_k3_kl=lambda step: 0.003 if step >= 10 else 1e-6)
    (problem,) = verdict.problems
    assert verdict.grade == "watch"
    assert (problem.metric, problem.since, problem.lasting) == ("mismatch_k3_kl", 10, True)
    assert "0.003 at the end, 0.003 at worst; healthy: 0.0005 or less" in problem.numbers
    assert problem.remedy


def test_a_single_value_outside_its_healthy_range_is_noise(tmp_path):
    assert verdict_of(tmp_path, mismatch_k3_kl=lambda step: 0.003 if step == 5 else 1e-6).grade == "healthy"


def test_a_group_that_stands_apart_is_named(tmp_path):
    verdict = verdict_of(tmp_path, **groups("mismatch_k3_kl", math=0.003, code=1e-6))
    (problem,) = verdict.problems
    assert (verdict.grade, problem.metric) == ("watch", "mismatch_k3_kl/math")
    assert problem.message.startswith("in the group math, the rollout engine gives")


def test_what_is_wrong_with_all_is_not_told_of_each_group(tmp_path):
    verdict = verdict_of(tmp_path, mismatch_k3_kl=0.003, **groups("mismatch_k3_kl", math=0.003, code=0.003))
    assert [problem.metric for problem in verdict.problems] == ["mismatch_k3_kl"]


def test_a_sound_run_with_details_is_healthy(tmp_path):
    assert verdict_of(tmp_path, **DETAILS, **groups("rollout_is_mean", math=1.0)) == ("healthy", ())


def test_a_value_out_of_its_range_has_the_causes_of_its_rule(tmp_path):
    (problem,) = verdict_of(tmp_path, mismatch_k3_kl=0.003).problems
    assert problem.causes[0] == "the engine is coarsely quantised, or of low precision"


@pytest.mark.parametrize(("metric", "rule"), RULE_OF.items())
def test_causes_are_of_a_range_and_a_rule_that_exist(metric, rule):
    assert RANGES[metric].limits()
    assert ADVICE[rule].causes


def test_mismatch_that_grows_along_the_response_is_unhealthy(tmp_path):
    steep = {f"mismatch_abs_log_ratio_decile_{decile:02d}": 0.01 * decile**2 for decile in range(1, 11)}
    verdict = verdict_of(tmp_path, **{**DETAILS, **steep})
    assert verdict.grade == "unhealthy"
    assert verdict.headline().startswith("The mismatch grows along the response")
    assert "kv_cache_dtype: auto" in verdict.problems[0].remedy


def test_the_gravest_comes_first(tmp_path):
    verdict = verdict_of(tmp_path, mismatch_k3_kl=0.003, rollout_is_veto_fraction=0.2)
    assert [problem.grade for problem in verdict.problems] == ["unhealthy", "watch"]


def test_what_lasts_comes_before_what_is_over(tmp_path):
    verdict = verdict_of(
        tmp_path, rollout_is_veto_fraction=lambda step: 0.5 if step == 5 else 0.0, mismatch_k3_kl=0.003
    )
    assert [problem.metric for problem in verdict.problems] == ["mismatch_k3_kl", "rollout_is_veto_fraction"]
    assert [problem.lasting for problem in verdict.problems] == [True, False]


def test_a_jump_that_is_over_does_not_hide_what_lasts(tmp_path):
    verdict = verdict_of(tmp_path, length=100, mismatch_k3_kl=lambda step: 0.05 if step == 60 else 0.002)
    first, second = verdict.problems
    assert (first.since, first.lasting, first.share) == (0, True, 1.0)
    assert "gives its own tokens other probabilities" in first.message
    assert "jumped" in second.message


def test_a_metric_is_not_blamed_twice(tmp_path):
    verdict = verdict_of(tmp_path, rollout_is_std=1.5)
    assert [problem.metric for problem in verdict.problems] == ["rollout_is_std"]


def test_thresholds_are_the_users(tmp_path):
    run = run_of(tmp_path, rollout_is_veto_fraction=0.04)
    assert judge(run).grade == "healthy"
    assert judge(run, Rules(veto_fraction=0.03)).grade == "unhealthy"


def test_values_that_are_no_numbers_are_told_of_and_disturb_nothing(tmp_path):
    verdict = verdict_of(tmp_path, mismatch_kl=lambda step: math.nan if step % 2 else 1e-6)
    (problem,) = verdict.problems
    assert verdict.grade == "watch"
    assert problem.message == "mismatch_kl is not a finite number"
    assert problem.numbers == "15 of 30 points"
    assert problem.since == 1


def test_nothing_but_nan_is_judged_all_the_same(tmp_path):
    verdict = verdict_of(tmp_path, **dict.fromkeys(SOUND, math.nan))
    assert verdict.grade == "watch"
    assert len(verdict.problems) == len(SOUND)


def test_few_statistics_and_gaps_are_enough(tmp_path):
    absent = {name: None for name in SOUND if name != "rollout_is_veto_fraction"}
    gaps = {**absent, "mismatch_k3_kl": lambda step: 1e-6 if step % 7 == 3 else None}
    assert verdict_of(tmp_path, **gaps).grade == "healthy"


def test_another_prefix_is_judged_by_the_same_rules(tmp_path):
    verdict = verdict_of(tmp_path, prefix="is/", rollout_is_veto_fraction=0.2)
    assert verdict.grade == "unhealthy"
    assert verdict.problems[0].metric == "rollout_is_veto_fraction"


@pytest.mark.parametrize("name", [name for name, healthy in RANGES.items() if any(map(math.isfinite, healthy.warning))])
def test_ranges_warn_where_the_rules_do(name):
    for limit, beyond in zip(RANGES[name].warning, (-1e-6, 1e-6), strict=True):
        if math.isfinite(limit):
            assert not check({f"mismatch/{name}": limit - beyond})
            assert check({f"mismatch/{name}": limit + beyond})
            assert RANGES[name].grade(limit + beyond) == "unhealthy" != RANGES[name].grade(limit - beyond)


@pytest.mark.parametrize("name", list(RANGES))
def test_agreement_is_healthy_and_distance_grows_from_it(name):
    healthy = RANGES[name]
    assert healthy.grade(healthy.ideal) == "healthy"
    assert healthy.distance(healthy.ideal) == 0 < healthy.distance(healthy.ideal + 0.1)
    assert (healthy.limits() == "") == (not any(map(math.isfinite, healthy.healthy)))
    assert bool(healthy.meaning and healthy.remedy) == bool(healthy.limits())
