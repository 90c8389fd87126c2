"""Variance and effective sample size, and a batch in which every response occurs as often as it is expected to."""

import itertools
import math
import random
import warnings
from fractions import Fraction

import pytest
import torch

from lightning_rollout_is import aggregate_loss, compute_rollout_importance_weights, importance_weights
from tests.estimators import exact, ours
from tests.estimators.exact import PREFIXES, TOKENS, TRAJECTORIES, Setting, World, mean, probability, ratios
from tests.estimators.worlds import SIZES, centred, drawn

UPPER, LOWER, VETO = Fraction(3, 2), Fraction(2, 3), Fraction(3, 5)
LEVELS = ("token", "sequence", "geometric")
SETTINGS = [
    pytest.param(Setting(level, mode, UPPER, LOWER, veto), id=f"{level}-{mode}-veto-{veto}")
    for level, mode, veto in itertools.product(LEVELS, ("truncate", "mask"), (Fraction(0), VETO))
]


def variance(world, setting):
    """By the library, over batches of one."""
    module = ours.tabular(world.train, setting)
    found = [(float(probability(world.rollout, t)), ours.estimate(module, world, t)) for t in TRAJECTORIES]
    return sum(p * exact.square(g) for p, g in found) - exact.square(exact.gradient_sum(found))


@pytest.mark.parametrize("level", ["none", *LEVELS])
def test_variance_is_what_the_fractions_give(level):
    world = drawn(1, SIZES["large"])
    for setting in (Setting(level), Setting(level, "truncate", UPPER), Setting(level, "mask", UPPER, LOWER)):
        assert variance(world, setting) == pytest.approx(float(exact.variance(world, setting)), rel=1e-10)


def test_variance_of_the_sequence_level_is_that_of_weighted_samples_on_policy():
    for size in SIZES.values():
        world = drawn(1, size)
        squares = mean(world.train, lambda t, w=world: math.prod(ratios(w, t)) * exact.square(exact.estimate(w, t)))
        closed = squares - exact.square(exact.expected(world.on_policy))
        assert closed == exact.variance(world, Setting("sequence"))
        assert variance(world, Setting("sequence")) == pytest.approx(float(closed), rel=1e-10)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_effective_sample_size_of_a_product_falls_with_the_power_of_the_length(length):
    train, rollout = ([Fraction(n, 10) for n in counts] for counts in ((5, 3, 2), (4, 3, 3)))
    chi_square = sum(p**2 / q for p, q in zip(train, rollout, strict=True)) - 1
    words = list(itertools.product(range(3), repeat=length))
    old, sampled = (torch.tensor([[math.log(x[i]) for i in word] for word in words]) for x in (train, rollout))
    weight = importance_weights(old, sampled, torch.ones_like(old), level="sequence", upper=1e8, veto=None).weight
    chance = torch.tensor([float(math.prod(rollout[i] for i in word)) for word in words]).double()
    first, second = ((chance * weight[:, 0].double() ** power).sum().item() for power in (1, 2))
    assert first == pytest.approx(1.0, rel=1e-6)
    assert 1 / second == pytest.approx(float((1 + chi_square) ** -length), rel=1e-6)
    assert chi_square > Fraction(1, 20)


def quartered(seed):
    """All probabilities are quarters: in 64 responses, each can occur exactly as often as expected."""
    draw = random.Random(seed)
    ways = [tuple(Fraction(2 if i == j else 1, 4) for j in range(3)) for i in range(3)]
    train, rollout = ({p: dict(zip(TOKENS, ways[draw.randrange(3)], strict=True)) for p in PREFIXES} for _ in range(2))
    return World(train, rollout, centred(train, {t: Fraction(draw.randint(0, 4)) for t in TRAJECTORIES}))


WORLD = quartered(0)
BATCH = [t for t in TRAJECTORIES for _ in range(int(64 * probability(WORLD.rollout, t)))]


def per_token(value):
    """Mean over sampled tokens of one value a token."""
    return float(mean(WORLD.rollout, lambda t: sum(value(t))) / mean(WORLD.rollout, len))


def raw(level):
    return lambda t: exact.raw_weights(ratios(WORLD, t), level)


def clamped(level):
    return lambda t: [min(max(w, LOWER), UPPER) for w in raw(level)(t)]


def squared(values):
    return lambda t: [float(w) ** 2 for w in values(t)]


def is_vetoed(setting):
    return lambda t: Fraction(min(ratios(WORLD, t)) < setting.veto)


def is_outside(level):
    return lambda t: [Fraction(not LOWER <= w <= UPPER) for w in raw(level)(t)]


def test_the_batch_is_its_own_expectation():
    assert len(BATCH) == 64
    assert all(BATCH.count(t) == 64 * probability(WORLD.rollout, t) for t in TRAJECTORIES)
    assert {r for t in TRAJECTORIES for r in ratios(WORLD, t)} == {Fraction(1, 2), 1, 2}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_reference_entry_gives_these_weights_and_their_moments(setting):
    level, batch = setting.level, ours.batch_of(WORLD, BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # 1.5 is not recommended at every level
        weights, metrics = compute_rollout_importance_weights(
            batch.old_log_prob,
            batch.rollout_log_prob,
            batch.mask,
            *(setting.level, setting.mode, float(UPPER), float(LOWER), float(setting.veto) or None),
        )
    expected = [exact.weights(WORLD, t, setting) for t in BATCH]
    assert [len(row) for row in expected] == batch.mask.sum(1).tolist()
    for ours_row, row in zip(weights.tolist(), expected, strict=True):
        assert ours_row == pytest.approx([float(w) for w in row] + [0.0] * (ours.WIDTH - len(row)))
    values = {
        "rollout_is_mean": per_token(raw(level)),
        "rollout_is_eff_sample_size": per_token(clamped(level)) ** 2 / per_token(squared(clamped(level))),
        "rollout_is_veto_fraction": float(mean(WORLD.rollout, is_vetoed(setting))),
        "mismatch_kl": per_token(lambda t: [-math.log(r) for r in ratios(WORLD, t)]),
        "mismatch_k3_kl": per_token(lambda t: [r - 1 - math.log(r) for r in ratios(WORLD, t)]),
    }
    if setting.mode == "mask":
        values["rollout_is_masked_fraction"] = per_token(is_outside(level))
    for name, value in values.items():
        assert metrics[f"mismatch/{name}"] == pytest.approx(value, rel=1e-9), name
    # A mismatch that no token shows would prove nothing.
    assert values["mismatch_kl"] > 0.05


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_module_records_what_the_loss_was_multiplied_by(setting, layout):
    batch, module = ours.batch_of(WORLD, BATCH), ours.tabular(WORLD.train, setting, details=True)
    module.token_loss(batch.packed() if layout == "packed" else batch)
    applied = per_token(lambda t: exact.weights(WORLD, t, setting))
    values = {
        "rollout_is_applied_mean": applied,
        "rollout_is_applied_eff_sample_size": exact.effective_sample_size(WORLD, setting),
        "mismatch_chi2_token": per_token(squared(raw("token"))) - 1,
        "mismatch_chi2_seq": float(mean(WORLD.rollout, lambda t: math.prod(ratios(WORLD, t)) ** 2)) - 1,
    }
    recorded = module.rollout_is_metrics.compute()
    for name, value in values.items():
        assert recorded[f"mismatch/{name}"].item() == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_one_step_on_it_is_the_expected_gradient(setting, layout):
    batch, module = ours.batch_of(WORLD, BATCH), ours.tabular(WORLD.train, setting)
    if layout == "packed":
        batch = batch.packed()
    per = {
        "seq-mean-token-sum": lambda t: Fraction(1),
        "seq-mean-token-mean": lambda t: Fraction(len(t)),
        "token-mean": lambda t: mean(WORLD.rollout, len),
    }
    for mode, of in per.items():
        found = module.ascent(aggregate_loss(module.token_loss(batch), batch.mask, mode, cu_seqlens=batch.cu_seqlens))
        ours.assert_close(found, exact.expected(WORLD, setting, of))
    assert exact.square(exact.expected(WORLD, setting)) > 1e-4
