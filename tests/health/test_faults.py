"""Tokens with a known fault, through the real statistics: which rules recognise it, and which stay silent."""

import math

import pytest
import torch

from lightning_rollout_is import RolloutISMetrics
from lightning_rollout_is.health import HealthHistory, check
from tests.health.points import rules_of

ROWS, LENGTH, VOCABULARY = 48, 32, 50
SHIFTS = {"constant_shift", "negative_kl"}
SEEDS = range(8)


def scalars(old, rollout, level="token", upper=2.0, mode="truncate"):
    config = {"rollout_is_threshold": upper, "rollout_is_level": level, "rollout_is_mode": mode}
    metrics = RolloutISMetrics(config, details=True)
    metrics.update(old, rollout, torch.ones_like(old))
    return {name: value.item() for name, value in metrics.compute().items()}


def logits(seed, peakedness=2.5):
    """A policy that is sure of some tokens and not of others."""
    generator = torch.Generator().manual_seed(seed)
    sureness = peakedness * torch.rand(ROWS, LENGTH, 1, generator=generator, dtype=torch.float64)
    return sureness * torch.randn(ROWS, LENGTH, VOCABULARY, generator=generator, dtype=torch.float64)


def sampled(sampler, seed, *policies):
    """Log-probs under each policy of tokens drawn from the log-probs of a sampler."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.multinomial(sampler.exp().flatten(0, 1), 1, generator=generator).view(ROWS, LENGTH, 1)
    return [policy.gather(-1, tokens).squeeze(-1) for policy in policies]


def found(old, rollout, **settings):
    return set(rules_of(check(scalars(old, rollout, **settings))))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [0.01, 0.1, 0.3, 1.0])
def test_noise_of_an_engine_is_no_shift(seed, scale):
    """Logits with noise, of which the engine both samples and reports: the KL grows with the noise, and is no shift."""
    clean = logits(seed)
    noisy = clean + scale * torch.randn(clean.shape, generator=torch.Generator().manual_seed(99 + seed))
    rollout = noisy.log_softmax(-1)
    rules = found(*sampled(rollout, seed, clean.log_softmax(-1), rollout))
    assert not rules & SHIFTS
    assert ("kl" in rules) == (scale == 1.0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [0.01, 0.1, 0.5])
def test_noise_of_the_log_probs_alone_is_no_shift(seed, scale):
    rollout = logits(seed).log_softmax(-1)
    (log_prob,) = sampled(rollout, seed, rollout)
    noise = scale * torch.randn(log_prob.shape, generator=torch.Generator().manual_seed(seed))
    assert found(log_prob + noise, log_prob) == set()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shift", [0.02, 0.1, 0.5, 0.8])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_constant_shift_is_recognised_through_noise(seed, shift, sign):
    rollout = logits(seed).log_softmax(-1)
    (log_prob,) = sampled(rollout, seed, rollout)
    noise = 0.05 * torch.randn(log_prob.shape, generator=torch.Generator().manual_seed(seed))
    rules = found(log_prob - sign * shift + noise, log_prob)
    # Upwards K3 grows so fast that a shift of 0.8 is recognised by its sign.
    assert rules & SHIFTS == {"constant_shift" if sign * shift > -0.8 else "negative_kl"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("top_p", [0.8, 0.9])
def test_top_p_in_the_engine_alone_is_a_shift(seed, top_p):
    """Renormalised over the tokens that are kept, each log-prob is higher by at most minus the log of top-p."""
    full = logits(seed).log_softmax(-1)
    ordered, order = full.sort(-1, descending=True)
    kept = (ordered.exp().cumsum(-1) - ordered.exp() < top_p).scatter(
        -1, order, ordered.exp().cumsum(-1) - ordered.exp() < top_p
    )
    cut = full.masked_fill(~kept, -math.inf).log_softmax(-1)
    assert "constant_shift" in found(*sampled(cut, seed, full, cut))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("temperature", [0.6, 0.8])
def test_log_probs_from_before_the_temperature_are_recognised(seed, temperature):
    """The engine samples at a temperature and returns the log-probs of temperature 1; the trainer uses the former."""
    raw = logits(seed)
    sampling = (raw / temperature).log_softmax(-1)
    assert found(*sampled(sampling, seed, sampling, raw.log_softmax(-1))) & SHIFTS


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("temperature", [0.6, 0.8, 1.3])
def test_a_temperature_of_the_engine_alone_is_a_policy_like_any_other(seed, temperature):
    """It reports what it samples from: the weights correct that, so that only its size may be too much."""
    raw = logits(seed)
    sampling = (raw / temperature).log_softmax(-1)
    old, rollout = sampled(sampling, seed, raw.log_softmax(-1), sampling)
    assert not found(old, rollout) & SHIFTS
    assert ("kl" in found(old, rollout)) == (scalars(old, rollout)["mismatch/mismatch_kl"] > 0.1)


def test_a_temperature_far_off_is_too_large_a_kl():
    raw = logits(0)
    sampling = (raw / 0.5).log_softmax(-1)
    assert "kl" in found(*sampled(sampling, 0, raw.log_softmax(-1), sampling))


def test_the_same_tensor_twice():
    (log_prob,) = sampled(logits(0).log_softmax(-1), 0, logits(0).log_softmax(-1))
    history = HealthHistory()
    seen = [rules_of(history.observe(step, scalars(log_prob, log_prob))) for step in range(21)]
    assert seen == [[]] * 19 + [["unchanged"]] * 2


def test_the_smallest_rounding_is_not_the_same_tensor():
    (log_prob,) = sampled(logits(0).log_softmax(-1), 0, logits(0).log_softmax(-1))
    history = HealthHistory()
    rounded = log_prob.float().double()
    assert all(history.observe(step, scalars(log_prob, rounded)) == [] for step in range(30))


@pytest.mark.parametrize("missing", [math.nan, -math.inf, -9999.0])
def test_missing_log_probs(missing):
    (log_prob,) = sampled(logits(0).log_softmax(-1), 0, logits(0).log_softmax(-1))
    some = log_prob.clone()
    some[0, 0] = missing
    assert found(log_prob, some) == {"missing_fraction"}
    assert found(log_prob, torch.full_like(log_prob, missing)) == {"all_missing"}


@pytest.mark.parametrize("sign", [1, -1])
def test_long_sequences_run_into_the_clamp(sign):
    old = torch.zeros(4, 300, dtype=torch.float64)
    for per_token, saturates in ((0.066, False), (0.067, True)):
        rules = found(old + sign * per_token, old, level="sequence", upper=5.0)
        assert ("saturation" in rules) == saturates
        assert "saturation" not in found(old + sign * per_token, old, level="geometric", upper=1.001)


def test_one_impossible_token_is_no_saturation():
    """At token level its weight is clamped from below, and it is one in thousands."""
    (log_prob,) = sampled(logits(0).log_softmax(-1), 0, logits(0).log_softmax(-1))
    old = log_prob.clone()
    old[0, 0] -= 30.0
    assert found(old, log_prob) == set()


POSITION = torch.linspace(0.0, 1.0, LENGTH, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("late", "grows"), [(0.0, False), (0.05, False), (0.5, True), (-0.5, False)])
def test_faults_that_add_up_over_the_context_are_recognised(seed, late, grows):
    """Logits with noise that grows along the response, or shrinks, or stays."""
    clean = logits(seed)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(99 + seed), dtype=torch.float64)
    spread = 0.05 + late * POSITION if late >= 0 else 0.05 - late * (1 - POSITION)
    rollout = (clean + spread * noise).log_softmax(-1)
    assert ("growing_with_position" in found(*sampled(rollout, seed, clean.log_softmax(-1), rollout))) == grows


@pytest.mark.parametrize("scale", [1e-6, 1e-4])
def test_in_full_precision_nothing_grows_that_matters(scale):
    clean = logits(0)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    rollout = (clean + scale * POSITION**4 * noise).log_softmax(-1)
    assert found(*sampled(rollout, 0, clean.log_softmax(-1), rollout)) == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sure_policy_that_scores_another_context_is_contradicted(seed):
    """A tenth of the positions is scored as if it were another, which a policy of peaked tokens shows at once."""
    rollout = logits(seed, peakedness=6.0).log_softmax(-1)
    elsewhere = rollout.roll(1, dims=1)
    mixed = torch.where(torch.arange(LENGTH)[:, None] % 10 == 0, elsewhere, rollout)
    assert "confident_disagreement" in found(*sampled(rollout, seed, mixed, rollout))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [0.1, 0.3])
def test_a_sure_policy_with_noise_is_not(seed, scale):
    clean = logits(seed, peakedness=6.0)
    noisy = clean + scale * torch.randn(clean.shape, generator=torch.Generator().manual_seed(99 + seed))
    rollout = noisy.log_softmax(-1)
    assert "confident_disagreement" not in found(*sampled(rollout, seed, clean.log_softmax(-1), rollout))


def test_weights_next_to_0_are_a_small_sample_though_the_clamp_hides_it():
    """Nine of ten sequences hardly count: clamped to [0.2, 5] their weights look like others, applied they do not."""
    old = torch.zeros(20, 8, dtype=torch.float64)
    rollout = old.clone()
    rollout[2:] += 1.0
    rules = found(old, rollout, level="sequence", upper=5.0)
    assert "applied_eff_sample_size" in rules
    assert "eff_sample_size" not in rules


def test_masking_nearly_all_leaves_a_small_sample():
    old = torch.zeros(20, 8, dtype=torch.float64)
    rollout = old.clone()
    rollout[4:, :] += 0.8
    assert found(old, rollout, mode="mask") >= {"masked_fraction", "applied_eff_sample_size"}
    assert "applied_eff_sample_size" not in found(old, rollout)


def test_weights_that_explode_are_too_large_a_chi_square():
    old = torch.zeros(10, 10, dtype=torch.float64)
    rollout = old.clone()
    rollout[0, 0] = -3.0
    assert "chi2_token" in found(old, rollout)
    rollout[0, 0] = -2.0
    assert "chi2_token" not in found(old, rollout)
