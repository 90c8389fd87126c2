"""Rules over a window: what holds, from where on, and what noise or a gap does to them."""

import math
import random

import pytest

from lightning_rollout_is.health import HealthHistory, Rules
from tests.health.points import SAME_TENSOR, point, rules_of

ESS, K3 = "rollout_is_eff_sample_size", "mismatch_k3_kl"


def observed(points, rules=None, first=0):
    """The rules that hold at each point, and the history after them."""
    history = HealthHistory(rules)
    return [rules_of(history.observe(step, values)) for step, values in enumerate(points, start=first)], history


def series(name, values):
    return [point(**{name: value}) for value in values]


class TestFalling:
    RULE = "falling_eff_sample_size"

    def test_a_slow_fall_is_seen_long_before_it_is_low(self):
        seen, history = observed(series(ESS, [0.98 - 0.006 * step for step in range(80)]))
        begins = next(step for step, rules in enumerate(seen) if rules)
        assert seen[begins] == [self.RULE]
        assert begins == 48
        (finding,) = history.observe(80, point(**{ESS: 0.5}))
        assert (finding.metric, finding.since) == (f"mismatch/{ESS}", 48)
        # The medians of the ten values from step 41 and of the ten up to step 80.
        assert finding.value == pytest.approx(0.98 - 0.006 * 75.5)
        assert finding.threshold == pytest.approx(0.8 * (0.98 - 0.006 * 45.5))
        assert "from 0.707 within 40 points" in finding.message

    @pytest.mark.parametrize("seed", range(5))
    def test_noise_is_no_fall(self, seed):
        draw = random.Random(seed)
        seen, _ = observed(series(ESS, [0.8 + draw.uniform(-0.1, 0.1) for _ in range(400)]))
        assert not any(seen)

    def test_a_rise_is_no_fall(self):
        seen, _ = observed(series(ESS, [0.5 + 0.005 * step for step in range(100)]))
        assert not any(seen)

    def test_a_few_low_points_are_no_fall(self):
        seen, _ = observed(series(ESS, [0.9] * 60 + [0.4] * 4 + [0.9] * 60))
        assert not any(seen)

    @pytest.mark.parametrize(("after", "falls"), [(0.801, False), (0.799, True)])
    def test_how_far_is_too_far(self, after, falls):
        seen, _ = observed(series(ESS, [1.0] * 20 + [after] * 20))
        assert any(seen) == falls

    def test_it_is_over_when_the_window_has_passed(self):
        seen, _ = observed(series(ESS, [1.0] * 40 + [0.7] * 60))
        held = [step for step, rules in enumerate(seen) if rules]
        assert held == list(range(held[0], held[-1] + 1))
        assert 40 < held[0] <= 50
        assert held[-1] < 80

    @pytest.mark.parametrize("window", [4, 8, 100])
    def test_the_window_is_as_long_as_it_says(self, window):
        seen, _ = observed(series(ESS, [1.0] * (window - window // 4) + [0.5] * (window // 4)), Rules(window=window))
        assert [step for step, rules in enumerate(seen) if rules] == [window - 1]

    def test_off(self):
        seen, _ = observed(series(ESS, [1.0] * 40 + [0.5] * 40), Rules(falling_eff_sample_size=None))
        assert not any(seen)


class TestJump:
    def test_a_jump_is_told_until_it_is_back(self):
        seen, history = observed(series(K3, [0.002] * 50 + [0.03] * 200 + [0.002] * 3))
        assert [step for step, rules in enumerate(seen) if rules == ["jump"]] == list(range(50, 250))
        (finding,) = history.observe(253, point(**{K3: 0.05}))
        assert (finding.metric, finding.value, finding.since) == (f"mismatch/{K3}", 0.05, 253)
        assert finding.threshold == pytest.approx(0.02)
        assert "the running median is 0.002" in finding.message

    def test_slow_growth_is_no_jump(self):
        seen, _ = observed(series(K3, [0.0001 * 1.05**step for step in range(150)]))
        assert not any(seen)

    @pytest.mark.parametrize(("value", "jumps"), [(0.0999, False), (0.1001, True)])
    def test_how_high_is_too_high(self, value, jumps):
        seen, _ = observed([*series(K3, [0.01] * 20), point(mismatch_k3_kl=value)])
        assert (seen[-1] == ["jump"]) == jumps

    @pytest.mark.parametrize(("value", "jumps"), [(0.00999, False), (0.01001, True)])
    def test_a_tiny_mismatch_may_jump_unheard(self, value, jumps):
        seen, _ = observed([*series(K3, [0.0] * 20), point(mismatch_k3_kl=value)])
        assert (seen[-1] == ["jump"]) == jumps

    @pytest.mark.parametrize(("before", "jumps"), [(9, False), (10, True)])
    def test_a_quarter_of_the_window_has_to_be_known(self, before, jumps):
        seen, _ = observed([*series(K3, [0.001] * before), point(mismatch_k3_kl=0.5)])
        assert (seen[-1] == ["jump"]) == jumps

    def test_outliers_do_not_move_the_median(self):
        values = [0.002, 0.002, 0.015] * 10
        seen, _ = observed(series(K3, [*values, 0.03]))
        assert seen[-1] == ["jump"]

    def test_the_running_median_runs(self):
        seen, _ = observed(series(K3, [0.001] * 50 + [0.009] * 50 + [0.05]))
        assert not any(seen)

    def test_off(self):
        seen, _ = observed(series(K3, [0.001] * 50 + [0.5] * 5), Rules(jump=None))
        assert not any(seen)


class TestUnchanged:
    def test_it_holds_since_the_first_of_them(self):
        seen, history = observed([point()] * 3 + [point(SAME_TENSOR)] * 22, first=100)
        assert [step for step, rules in enumerate(seen) if rules] == [22, 23, 24]
        (finding,) = history.observe(125, point(SAME_TENSOR))
        assert (finding.rule, finding.since) == ("unchanged", 103)
        assert "23 points in a row" in finding.message

    def test_one_point_with_a_mismatch_begins_the_count_anew(self):
        seen, _ = observed([point(SAME_TENSOR)] * 19 + [point()] + [point(SAME_TENSOR)] * 19)
        assert not any(seen)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("rollout_is_min", 1 - 1e-7), ("rollout_is_max", 1 + 1e-7), ("mismatch_kl", 1e-12), (K3, 1e-15)],
    )
    def test_the_smallest_mismatch_counts(self, name, value):
        seen, _ = observed([point(SAME_TENSOR, **{name: value})] * 30)
        assert not any(seen)

    def test_a_point_without_values_neither_counts_nor_breaks(self):
        nothing = point(dict.fromkeys(SAME_TENSOR, math.nan))
        seen, _ = observed([point(SAME_TENSOR)] * 10 + [nothing] * 5 + [point(SAME_TENSOR)] * 10)
        assert [step for step, rules in enumerate(seen) if rules] == [24]

    @pytest.mark.parametrize(("points", "held"), [(1, 3), (3, 1), (4, 0), (None, 0)])
    def test_how_many_are_too_many(self, points, held):
        seen, _ = observed([point(SAME_TENSOR)] * 3, Rules(unchanged=points))
        assert sum(rules == ["unchanged"] for rules in seen) == held
