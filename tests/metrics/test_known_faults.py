"""Inputs on which other implementations were seen to show wrong numbers, and the numbers that are right."""

import math
from typing import Any

import pytest
import torch

from lightning_rollout_is import RolloutISMetrics
from tests.reference.batches import Batch, Rows, batch_of_log_ratios, batch_of_ratios, lay_out
from tests.reference.metric_values import TOKEN, config_of, metrics_of, update, values


def metrics_of_batch(old: Rows, rollout: Rows, mask: Rows | None = None, **settings: Any) -> dict[str, float]:
    mask = [[1.0] * len(row) for row in old] if mask is None else mask
    return metrics_of([lay_out(Batch(old, rollout, mask))], **settings)


def metrics_of_ratios(*batches: Rows, **settings: Any) -> dict[str, float]:
    return metrics_of([lay_out(batch_of_ratios(batch)) for batch in batches], **settings)


def assert_values(computed: dict[str, float], expected: dict[str, float]) -> None:
    assert {name: computed[name] for name in expected} == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("missing", [math.nan, -math.inf, math.inf, -9999.0])
def test_missing_log_prob_is_counted_and_left_out(missing: float) -> None:
    computed = metrics_of_batch([[-1.0, -1.0, -1.0]], [[-1.1, missing, -1.2]])
    assert all(math.isfinite(value) for value in computed.values())
    assert computed["rollout_is_missing_fraction"] == pytest.approx(1 / 3)
    without = metrics_of_batch([[-1.0, -1.0]], [[-1.1, -1.2]])
    del computed["rollout_is_missing_fraction"], without["rollout_is_missing_fraction"]
    assert computed == pytest.approx(without, rel=1e-14)


def test_token_impossible_under_training() -> None:
    computed = metrics_of_batch([[-1.0, -math.inf], [-1.0, -1.0]], [[-1.0, -1.0], [-1.0, -1.0]], level="sequence")
    expected = {
        "rollout_is_veto_fraction": 0.5,
        "rollout_is_catastrophic_token_fraction": 0.25,
        "rollout_is_min": 0.0,
        "rollout_is_max": 1.0,
        "rollout_is_missing_fraction": 0.0,
        "mismatch_kl": math.inf,
    }
    assert_values(computed, expected)
    assert not any(math.isnan(value) for value in computed.values())


@pytest.mark.parametrize(("length", "log_ratio", "largest"), [(4096, 0.01, math.exp(20.0)), (4096, -0.01, None)])
def test_extremes_of_long_sequences(length: int, log_ratio: float, largest: float | None) -> None:
    """The minimum of the sequence level is not clamped below, so that it tells 1e-9 from 1e-18."""
    computed = metrics_of([lay_out(batch_of_log_ratios([[log_ratio] * length], rollout=0.0))], level="sequence")
    smallest = largest or math.exp(length * log_ratio)
    assert computed["rollout_is_min"] == pytest.approx(smallest, rel=1e-9, abs=0.0)
    assert computed["rollout_is_max"] == pytest.approx(smallest, rel=1e-9, abs=0.0)
    assert computed["rollout_is_mean"] == pytest.approx(largest or math.exp(-20.0), rel=1e-6, abs=0.0)


def test_k3_is_finite_and_never_negative() -> None:
    assert metrics_of_batch([[100.0]], [[0.0]])["mismatch_k3_kl"] == pytest.approx(485165174.4, rel=1e-9)
    assert metrics_of_batch([[-20.0]], [[0.0]])["mismatch_k3_kl"] == pytest.approx(19.0 + 2.06e-9, rel=1e-12)
    assert metrics_of_batch([[-800.0]], [[0.0]])["mismatch_k3_kl"] == pytest.approx(799.0, rel=1e-9)


def test_kl_signs() -> None:
    mask = [[1.0, 1.0], [1.0, 0.0]]
    computed = metrics_of_batch([[-1.0, -3.0], [-2.0, 9.0]], [[-1.5, -1.5], [-1.0, -9.0]], mask)
    expected = {
        "mismatch_kl": 0.666667,
        "mismatch_k3_kl": 0.413244,
        "mismatch_log_ppl_diff": 0.75,
        "mismatch_log_ppl_abs_diff": 0.75,
        "mismatch_log_ppl_diff_max": 1.0,
        "mismatch_log_ppl_diff_min": 0.5,
        "mismatch_ppl_ratio": 2.183502,
    }
    assert {name: computed[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_tool_tokens_are_not_compared() -> None:
    computed = metrics_of_batch(
        [[-1.0, -1.0, -9.0, -8.0, -1.0, -1.0]], [[-1.0, -1.0, 0.0, 0.0, -1.0, -1.0]], [[1.0, 1.0, 0.0, 0.0, 1.0, 1.0]]
    )
    expected = {"mismatch_kl": 0.0, "rollout_is_veto_fraction": 0.0, "mismatch_training_ppl": math.e}
    assert_values(computed, expected)


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_row_without_a_response_token_counts_nowhere(level: str) -> None:
    old, rollout = [[-0.5, -0.5, 7.0], [-4.0, -4.0, -4.0]], [[-1.0, -1.0, -7.0], [-0.1, -0.1, -0.1]]
    computed = metrics_of_batch(old, rollout, [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], level=level, upper=5.0)
    mean_weight = math.e if level == "sequence" else 1.648721271
    expected = {
        "mismatch_training_ppl": 1.648721271,
        "mismatch_rollout_ppl": 2.718281828,
        "mismatch_log_ppl_diff": -0.5,
        "mismatch_log_ppl_diff_max": -0.5,
        "mismatch_log_ppl_diff_min": -0.5,
        "mismatch_ppl_ratio": 0.606530660,
        "rollout_is_seq_mean": mean_weight,
        "rollout_is_seq_min": mean_weight,
        "rollout_is_seq_std": 0.0,
        "rollout_is_seq_fraction_low": 0.0,
        "rollout_is_veto_fraction": 0.0,
    }
    assert_values(computed, expected)


def test_statistics_are_taken_before_rejection() -> None:
    computed = metrics_of_ratios([[0.4, 1.0, 3.0, 1.5]])
    expected = {
        "rollout_is_masked_fraction": 0.5,
        "rollout_is_seq_masked_fraction": 1.0,
        "rollout_is_ratio_fraction_high": 0.25,
        "rollout_is_ratio_fraction_low": 0.25,
        "rollout_is_mean": 1.475,
        "mismatch_kl": -(math.log(0.4) + math.log(3.0) + math.log(1.5)) / 4,
    }
    assert_values(computed, expected)


def test_fractions_are_strict_at_the_threshold() -> None:
    computed = metrics_of_batch([[-1.0]], [[-1.0]], upper=1.0, lower=1.0)
    names = ["ratio_fraction_high", "ratio_fraction_low", "masked_fraction", "seq_fraction_high", "seq_fraction_low"]
    assert [computed[f"rollout_is_{name}"] for name in names] == [0.0] * 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("log_ratio", [-30.0, -0.4, 1e-3, 0.4, 30.0])
def test_one_weight_has_no_spread(log_ratio: float, level: str, dtype: torch.dtype) -> None:
    computed = metrics_of([lay_out(batch_of_log_ratios([[log_ratio]]), old_dtype=dtype)], level=level)
    assert computed["rollout_is_std"] == 0.0
    assert computed["rollout_is_seq_std"] == 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_constant_shift_has_no_spread(dtype: torch.dtype) -> None:
    """A temperature or a nucleus that one engine applies and the other does not: -ln 0.9 on every token."""
    rows = [[math.log(0.9)] * 300] * 4
    computed = metrics_of([lay_out(batch_of_log_ratios(rows, rollout=0.0), old_dtype=dtype)])
    assert computed["mismatch_kl"] == pytest.approx(0.105361, rel=1e-5)
    assert computed["rollout_is_std"] < 1e-8
    assert computed["rollout_is_seq_std"] < 1e-8


def test_perplexity_is_a_mean_over_sequences() -> None:
    computed = metrics_of_batch([[-1.0, -1.0], [-3.0]], [[-0.5, -0.5], [-2.0]])
    expected = {
        "mismatch_training_ppl": 11.4019093757,
        "mismatch_training_log_ppl": 2.0,
        "mismatch_rollout_log_ppl": 1.25,
        "mismatch_ppl_ratio": 2.1835015496,
    }
    assert_values(computed, expected)


def test_slightly_positive_log_prob_is_accepted() -> None:
    assert metrics_of_batch([[0.0]], [[0.03]])["mismatch_rollout_ppl"] == pytest.approx(0.970446, rel=1e-6)


def test_spread_between_batches_is_seen() -> None:
    computed = metrics_of_ratios([[1.0], [1.0]], [[3.0], [3.0]], upper=4.0)
    assert_values(computed, {"rollout_is_std": 1.0, "rollout_is_seq_std": 1.1547005384})


def test_maximum_over_batches() -> None:
    computed = metrics_of_ratios([[1.2]], [[3.0]], [[0.7]])
    expected = {"rollout_is_max": 3.0, "rollout_is_min": 0.7, "rollout_is_seq_max": 3.0, "rollout_is_seq_min": 0.7}
    assert_values(computed, expected | {"rollout_is_seq_max_deviation": 2.0})


def test_smallest_weight_can_deviate_most() -> None:
    computed = metrics_of_ratios([[0.1]], [[1.2]])
    assert_values(computed, {"rollout_is_seq_max_deviation": 0.9})


def test_effective_sample_size_is_not_averaged() -> None:
    computed = metrics_of_ratios([[1.0] * 4], [[2.0 - 1e-9] * 4])
    assert computed["rollout_is_eff_sample_size"] == pytest.approx(0.9, rel=1e-8)


def test_spread_and_effective_sample_size_are_of_clamped_weights() -> None:
    computed = metrics_of_ratios([[0.1, 5.0]])
    expected = {"rollout_is_mean": 2.55, "rollout_is_std": 0.75, "rollout_is_eff_sample_size": 1.5625 / 2.125}
    assert_values(computed, expected)


def test_sequence_fractions_count_sequences_where_the_level_is_sequence() -> None:
    log_ratios = [[0.8], [0.0, 0.0, 0.0]]
    by_level = {
        level: metrics_of([lay_out(batch_of_log_ratios(log_ratios))], level=level)["rollout_is_ratio_fraction_high"]
        for level in ("token", "sequence", "geometric")
    }
    assert by_level == {"token": 0.25, "sequence": 0.5, "geometric": 0.25}


def test_counts_are_exact_beyond_2_to_the_24() -> None:
    metric = RolloutISMetrics(config_of(TOKEN))
    update(metric, lay_out(batch_of_log_ratios([[0.0] * 32767]), old_dtype=torch.float32))
    for _ in range(10):
        metric.merge_state(metric)
    update(metric, lay_out(batch_of_ratios([[3.0]])))
    computed = values(metric)
    assert computed["rollout_is_masked_fraction"] == 1.0 / 33553409.0
    assert computed["rollout_is_seq_masked_fraction"] == 1.0 / 1025.0
