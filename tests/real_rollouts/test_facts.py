"""What real engines do to importance weights: the facts from which one chooses an engine, a level and thresholds."""

import math

import pytest

from lightning_rollout_is import RolloutISMetrics
from lightning_rollout_is.health import check
from tests.real_rollouts.presets import PRESETS
from tests.real_rollouts.rollouts import ENGINES, read_batch
from tests.reference.batches import lay_out
from tests.reference.metric_values import metrics_of, update, values

COARSE = "llama_cpp_q4_0"
FAITHFUL = ("vllm_fp32", "llama_cpp_f16")
SOUND = [engine for engine in ENGINES if engine != COARSE]


def under(preset: str, engine: str, length: int | None = None) -> dict[str, float]:
    """Every statistic of the first ``length`` tokens of an engine's responses."""
    return metrics_of([lay_out(read_batch(engine, length))], **PRESETS[preset].weight_options)


def outside_a_factor_of_2(engine: str, length: int | None = None, level: str = "sequence") -> float:
    tensors = lay_out(read_batch(engine, length))
    return metrics_of([tensors], level=level, mode="mask", upper=2.0)["rollout_is_seq_masked_fraction"]


def rules(preset: str, engine: str) -> set[str]:
    """Broken by one point of a run, as the callback would log it."""
    metrics = RolloutISMetrics(PRESETS[preset], details=True)
    update(metrics, lay_out(read_batch(engine)))
    return {finding.rule for finding in check(values(metrics), prefix="")}


def test_in_float32_two_programs_agree_on_every_token() -> None:
    """So index t of both is the same token, and the mismatch of all others is no fault of the bookkeeping."""
    found = under("token_mask", "vllm_fp32")
    assert max(found["rollout_is_max"] - 1.0, 1.0 - found["rollout_is_min"]) < 5e-5
    assert found["mismatch_k3_kl"] < 1e-10
    assert outside_a_factor_of_2("vllm_fp32") == 0.0


def test_tokens_look_fine_where_responses_do_not() -> None:
    found = under("token_mask", "llama_cpp_q8_0")
    assert found["rollout_is_masked_fraction"] == 2 / 1214
    assert found["rollout_is_eff_sample_size"] > 0.989
    assert [outside_a_factor_of_2("llama_cpp_q8_0", length) * 32 for length in (1, 4, 16, 32, 48)] == [0, 0, 1, 7, 12]


@pytest.mark.parametrize("engine", ENGINES)
def test_longer_responses_lie_outside_more_often(engine: str) -> None:
    shares = [outside_a_factor_of_2(engine, length) for length in (1, 16, 48)]
    assert shares == sorted(shares)
    assert (shares[0] < shares[-1]) == (engine not in FAITHFUL)


def test_bfloat16_on_both_sides_is_no_agreement() -> None:
    float32, bfloat16 = (under("monitor", engine) for engine in ("vllm_bf16", "vllm_bf16_both"))
    assert bfloat16["mismatch_k3_kl"] > 1.4 * float32["mismatch_k3_kl"]
    assert outside_a_factor_of_2("vllm_bf16") == 1 / 32
    assert outside_a_factor_of_2("vllm_bf16_both") == 5 / 32


def test_equal_weights_are_no_agreement_either() -> None:
    """llama.cpp ran the very weights that the trainer has; the rest is its arithmetic."""
    found = [under("monitor", engine)["mismatch_k3_kl"] for engine in ("llama_cpp_q4_1_file", "llama_cpp_q4_1")]
    assert found == pytest.approx([0.0039, 0.0035], abs=5e-5)


@pytest.mark.parametrize("engine", SOUND)
def test_token_truncation_cuts_nothing_of_a_sound_engine(engine: str) -> None:
    found = under("token_truncate", engine)
    assert found["rollout_is_ratio_fraction_high"] == 0.0
    assert found["rollout_is_eff_sample_size"] > 0.98


@pytest.mark.parametrize("engine", SOUND)
def test_sequence_weights_cost_up_to_half_of_a_batch(engine: str) -> None:
    token, sequence = (under(preset, engine) for preset in ("token_truncate", "sequence_truncate"))
    assert 0.5 < sequence["rollout_is_eff_sample_size"] <= token["rollout_is_eff_sample_size"]
    assert (sequence["rollout_is_eff_sample_size"] < 0.95) == (engine not in FAITHFUL)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_geometric_interval_is_narrower_than_the_noise_of_any_engine_but_one(engine: str) -> None:
    """A mean over 40 tokens spreads by a sixth of what a token does, and the preset leaves 2e-4 either way."""
    masked = under("geometric_mask", engine)["rollout_is_masked_fraction"]
    assert masked == pytest.approx({"vllm_fp32": 0.0, "llama_cpp_f16": 0.744}.get(engine, 1.0), abs=0.04)


def test_what_each_preset_bounds_of_a_coarse_engine() -> None:
    bounded = {
        "token_truncate": ("rollout_is_ratio_fraction_high", 108 / 1270),
        "token_mask": ("rollout_is_masked_fraction", 491 / 1270),
        "asymmetric": ("rollout_is_masked_fraction", 617 / 1270),
        "sequence_truncate": ("rollout_is_ratio_fraction_high", 0.0),
        "sequence_mask": ("rollout_is_masked_fraction", 1253 / 1270),
        "geometric_mask": ("rollout_is_masked_fraction", 1.0),
    }
    found = {preset: under(preset, COARSE)[name] for preset, (name, _) in bounded.items()}
    assert found == pytest.approx({preset: value for preset, (_, value) in bounded.items()}, rel=1e-12)


def test_the_logged_effective_sample_size_cannot_tell_that_every_weight_is_at_a_bound() -> None:
    """All but one weight lie under 1/5 and are clamped to it: equal weights, of which nothing is left in the loss."""
    found = under("sequence_truncate", COARSE)
    assert found["rollout_is_eff_sample_size"] > 0.98
    assert found["rollout_is_seq_mean"] < 0.02
    assert found["rollout_is_ratio_fraction_low"] == 31 / 32
    weights = [math.exp(sum(old) - sum(rollout)) for old, rollout, _ in zip(*read_batch(COARSE), strict=True)]
    assert sum(weights) ** 2 / sum(weight**2 for weight in weights) / 32 < 0.06


@pytest.mark.parametrize("engine", ENGINES)
def test_no_engine_has_a_token_under_the_veto(engine: str) -> None:
    found = under("token_truncate", engine)
    assert found["rollout_is_veto_fraction"] == 0.0
    assert found["rollout_is_min"] > 5e-4


@pytest.mark.parametrize("engine", SOUND)
@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset != "geometric_mask"])
def test_health_says_nothing_of_a_sound_engine(preset: str, engine: str) -> None:
    assert rules(preset, engine) == set()


@pytest.mark.parametrize("engine", SOUND)
def test_health_says_when_the_geometric_interval_is_too_narrow(engine: str) -> None:
    expected = set() if engine == "vllm_fp32" else {"masked_fraction", "applied_eff_sample_size"}
    assert rules("geometric_mask", engine) == expected


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("monitor", set()),
        ("token_truncate", set()),
        ("token_mask", {"masked_fraction"}),
        ("asymmetric", {"masked_fraction"}),
        ("sequence_truncate", {"mean_low", "saturation", "applied_eff_sample_size"}),
        ("sequence_mask", {"mean_low", "saturation", "applied_eff_sample_size", "masked_fraction"}),
        ("geometric_mask", {"applied_eff_sample_size", "masked_fraction"}),
    ],
)
def test_health_says_what_is_wrong_with_a_coarse_engine(preset: str, expected: set[str]) -> None:
    assert rules(preset, COARSE) == {"kl", "chi2_token", "confident_disagreement"} | expected
