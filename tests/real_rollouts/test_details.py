"""The statistics beyond the specification on real rollouts: against the oracle, and what they tell of real engines."""

import math
from itertools import chain

import pytest

from lightning_rollout_is import RolloutISMetrics
from tests.real_rollouts.presets import PRESETS
from tests.real_rollouts.rollouts import ENGINES, read_batch
from tests.reference import detail_oracle
from tests.reference.batches import LAYOUTS, lay_out
from tests.reference.closeness import log_ratios
from tests.reference.metric_values import update, values


def details_of(engine: str, preset: str, layout: str = "right") -> dict[str, float]:
    metrics = RolloutISMetrics(PRESETS[preset], details=True)
    update(metrics, lay_out(read_batch(engine), layout, padding=math.nan))
    return values(metrics)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_value_under_every_preset(engine: str, preset: str) -> None:
    expected = detail_oracle.details(*read_batch(engine), **PRESETS[preset].weight_options)
    assert len(expected) == 34
    layout = LAYOUTS[list(PRESETS).index(preset) % len(LAYOUTS)]
    found = details_of(engine, preset, layout)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-7, abs=1e-14)


@pytest.mark.parametrize("engine", ENGINES)
def test_quantiles_lie_as_close_as_their_bins_allow(engine: str) -> None:
    found, ordered = details_of(engine, "monitor"), sorted(chain(*log_ratios(read_batch(engine))))
    for percent in (1, 5, 50, 95, 99):
        exact = ordered[-(-percent * len(ordered) // 100) - 1]
        assert found[f"mismatch_log_ratio_p{percent:02d}"] == pytest.approx(exact, rel=0.0906, abs=7.7e-6), percent


@pytest.mark.parametrize("engine", ENGINES)
def test_chi_square_and_mean_give_the_effective_sample_size_without_bounds(engine: str) -> None:
    """Kish: N weights of mean m are worth N m^2 / (1 + chi-square)."""
    found = details_of(engine, "sequence_truncate")
    weights = [math.exp(math.fsum(row)) for row in log_ratios(read_batch(engine))]
    exact = math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights) / len(weights)
    assert found["rollout_is_seq_mean"] ** 2 / (1.0 + found["mismatch_chi2_seq"]) == pytest.approx(exact, rel=1e-6)


def test_a_chi_square_near_minus_1_is_a_sample_that_misses_the_training_policy() -> None:
    """No sampled response is one that the training policy would give often, so the sample cannot see how far it is."""
    found = details_of("llama_cpp_q4_0", "sequence_truncate")
    assert found["mismatch_chi2_seq"] < -0.99
    assert found["rollout_is_mean"] < 0.01
    assert found["rollout_is_applied_eff_sample_size"] < 0.05 < 0.9 < found["rollout_is_eff_sample_size"]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_mismatch_does_not_grow_along_a_response_of_48_tokens(engine: str) -> None:
    found = details_of(engine, "monitor")
    tenths = [found[f"mismatch_abs_log_ratio_decile_{decile:02d}"] for decile in range(1, 11)]
    assert 0.75 < tenths[-1] / tenths[0] < 1.25
    assert sum(tenths[5:]) / sum(tenths[:5]) == pytest.approx(1.0, abs=0.1)


def test_only_the_coarse_engine_is_sure_of_what_the_trainer_denies() -> None:
    denied = {engine: details_of(engine, "monitor")["mismatch_confident_disagreement_fraction"] for engine in ENGINES}
    assert {engine: share for engine, share in denied.items() if share} == {"llama_cpp_q4_0": 5 / 1270}


def test_the_unbiased_estimator_is_lost_in_its_own_noise() -> None:
    found = {engine: details_of(engine, "monitor") for engine in ENGINES}
    lost = [name for name, of in found.items() if of["mismatch_kl"] < 2 * of["mismatch_kl_stderr"]]
    assert lost == ["llama_cpp_f16", "llama_cpp_q4_1", "llama_cpp_q4_1_file", "vllm_bf16", "vllm_bf16_both"]


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "llama_cpp_q4_0"])
def test_the_median_is_0_but_for_a_coarse_engine(engine: str) -> None:
    assert abs(details_of(engine, "monitor")["mismatch_log_ratio_p50"]) < 6e-4
    assert details_of("llama_cpp_q4_0", "monitor")["mismatch_log_ratio_p50"] < -0.15
