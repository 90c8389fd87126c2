"""The statistics beyond the specification, on real rollouts, against plain Python."""

import math

import pytest

from lightning_rollout_is import RolloutISMetrics
from tests.real_rollouts import plain_details as plain
from tests.real_rollouts.presets import PRESETS
from tests.real_rollouts.rollouts import ENGINES, read_batch
from tests.reference import oracle
from tests.reference.batches import LAYOUTS, lay_out
from tests.reference.metric_values import update, values


def details_of(engine: str, preset: str, layout: str = "right") -> dict[str, float]:
    metrics = RolloutISMetrics(PRESETS[preset], details=True)
    update(metrics, lay_out(read_batch(engine), layout, padding=math.nan))
    return values(metrics)


def check_against(expected: dict[str, float], found: dict[str, float], relative: float = 1e-9) -> None:
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=relative, abs=1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_does_not_depend_on_the_level(engine: str, layout: str) -> None:
    batch, found = read_batch(engine), details_of(engine, "sequence_mask", layout)
    check_against(plain.chi_square(batch), found)
    check_against(plain.probabilities(batch), found)
    check_against(plain.position_profile(batch), found)
    check_against({"mismatch_kl_stderr": plain.standard_error(plain.log_ratios(batch))}, found, 1e-6)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("engine", ENGINES)
def test_weights_that_multiply_the_loss_and_the_error_of_their_mean(engine: str, preset: str) -> None:
    batch, found, options = read_batch(engine), details_of(engine, preset), PRESETS[preset].weight_options
    check_against(plain.applied(oracle.weights(*batch, **options)), found)
    sequences = oracle.read_batch(*batch, options["level"], options["veto"])
    raw = [[oracle.clamped_exp(value) for value in sequence.log_weights] for sequence in sequences]
    check_against({"rollout_is_mean_stderr": plain.standard_error(raw)}, found, 1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_quantiles_lie_as_close_as_their_bins_allow(engine: str) -> None:
    found = details_of(engine, "monitor")
    for percent in (1, 5, 50, 95, 99):
        exact = plain.quantile(read_batch(engine), percent)
        assert found[f"mismatch_log_ratio_p{percent:02d}"] == pytest.approx(exact, rel=0.0906, abs=7.7e-6), percent


@pytest.mark.parametrize("engine", ENGINES)
def test_chi_square_and_mean_give_the_effective_sample_size_without_bounds(engine: str) -> None:
    """Kish: a batch of N weights of mean m is worth N m^2 / (1 + chi-square)."""
    found = details_of(engine, "sequence_truncate")
    weights = [math.exp(math.fsum(row)) for row in plain.log_ratios(read_batch(engine))]
    exact = math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights) / len(weights)
    assert found["rollout_is_seq_mean"] ** 2 / (1.0 + found["mismatch_chi2_seq"]) == pytest.approx(exact, rel=1e-6)


def test_a_chi_square_under_0_is_the_mark_of_samples_that_miss_the_training_policy() -> None:
    """No sampled response is one that the training policy would give often, so the sample cannot see how far it is."""
    found = details_of("llama_cpp_q4_0", "sequence_truncate")
    assert found["mismatch_chi2_seq"] < -0.99
    assert found["rollout_is_mean"] < 0.01
    assert found["rollout_is_applied_eff_sample_size"] < 0.05 < 0.9 < found["rollout_is_eff_sample_size"]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_mismatch_does_not_grow_along_a_response_of_48_tokens(engine: str) -> None:
    found = details_of(engine, "monitor")
    tenths = [found[f"mismatch_abs_log_ratio_decile_{decile:02d}"] for decile in range(1, 11)]
    assert max(tenths) < 2 * min(tenths)
    assert sum(tenths[5:]) / sum(tenths[:5]) == pytest.approx(1.0, abs=0.1)


def test_only_the_coarse_engine_denies_what_the_trainer_is_sure_of() -> None:
    denied = {engine: details_of(engine, "monitor")["mismatch_confident_disagreement_fraction"] for engine in ENGINES}
    assert {engine: share for engine, share in denied.items() if share} == {"llama_cpp_q4_0": 5 / 1270}
