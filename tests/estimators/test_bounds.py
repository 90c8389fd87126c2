"""What bounds and veto cost: the bias of each in closed form, a fraction."""

from fractions import Fraction

import pytest

from tests.estimators import exact, ours, theory
from tests.estimators.exact import PREFIXES, TOKENS, TRAJECTORIES, Setting, probability, ratios
from tests.estimators.test_levels import expected
from tests.estimators.worlds import SIZES, drawn, filtered

UPPER, LOWER, VETO = Fraction(3, 2), Fraction(4, 5), Fraction(7, 10)
WORLDS = [pytest.param(drawn(seed, SIZES["large"]), id=f"seed-{seed}") for seed in (0, 1)]
NEXT = [(prefix, token) for prefix in PREFIXES for token in TOKENS]


def lost(world, part):
    """Minus the sum of the trajectories' on-policy estimates, each times the part that is cut from its probability."""
    return exact.gradient_sum((-part(t), exact.estimate(world, t)) for t in TRAJECTORIES)


def truncated(world, trajectory):
    """Training probability above what the bound lets through."""
    return max(Fraction(0), probability(world.train, trajectory) - UPPER * probability(world.rollout, trajectory))


def masked(world, trajectory):
    train, rollout = probability(world.train, trajectory), probability(world.rollout, trajectory)
    return Fraction(0) if LOWER * rollout <= train <= UPPER * rollout else train


def vetoed(world, trajectory):
    return probability(world.train, trajectory) if min(ratios(world, trajectory)) < VETO else Fraction(0)


CASES = {
    "truncate": (Setting("sequence", "truncate", UPPER), truncated),
    "mask": (Setting("sequence", "mask", UPPER, LOWER), masked),
    "veto": (Setting("sequence", veto=VETO), vetoed),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("world", WORLDS)
def test_bias_of_the_sequence_level(world, case):
    setting, part = CASES[case]
    bias = lost(world, lambda t: part(world, t))
    assert exact.square(bias) > Fraction(1, 10**4)
    assert exact.minus(bias, exact.bias(world, setting)) == {}
    ours.assert_close(expected(world, setting), exact.gradient_sum([(1, bias), (1, exact.expected(world.on_policy))]))


def test_what_the_engine_never_samples_no_weight_brings_back():
    world = filtered(drawn(0, Fraction(0)))
    never = lost(
        world.on_policy, lambda t: Fraction(0) if probability(world.rollout, t) else probability(world.train, t)
    )
    assert exact.square(never) > exact.square(exact.expected(world.on_policy)) / 100
    assert exact.minus(never, exact.bias(world, Setting("sequence"))) == {}
    right = exact.expected(world.on_policy)
    ours.assert_close(expected(world, Setting("sequence")), exact.gradient_sum([(1, never), (1, right)]))


def lost_tokens(world, part):
    """The same for single tokens, their value being that of the rollout policy from there on."""
    total = {}
    for prefix, token in NEXT:
        value = theory.action_value(world.rollout, world.advantage, prefix, token)
        cut = theory.reach(world.rollout, prefix) * part(world.train[prefix][token], world.rollout[prefix][token])
        exact.add(total, -cut * value, exact.score(world.train, prefix, token))
    return total


TOKEN_CASES = {
    "truncate": (Setting("token", "truncate", UPPER), lambda p, q: max(Fraction(0), p - UPPER * q)),
    "mask": (Setting("token", "mask", UPPER, LOWER), lambda p, q: Fraction(0) if LOWER * q <= p <= UPPER * q else p),
}


@pytest.mark.parametrize("case", TOKEN_CASES)
@pytest.mark.parametrize("world", WORLDS)
def test_bounds_of_the_token_level_add_to_its_bias(world, case):
    setting, part = TOKEN_CASES[case]
    added = lost_tokens(world, part)
    assert exact.square(added) > Fraction(1, 10**4)
    ours.assert_close(expected(world, setting), exact.gradient_sum([(1, added), (1, theory.policy_gradient(world))]))


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("veto", [Fraction(0), VETO])
def test_each_trajectory_at_every_level_and_mode(level, mode, veto):
    world = drawn(0, SIZES["large"])
    setting = Setting(level, mode, UPPER, LOWER, veto)
    module = ours.tabular(world.train, setting)
    for trajectory in TRAJECTORIES:
        ours.assert_close(ours.estimate(module, world, trajectory), exact.estimate(world, trajectory, setting))


@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_bound_that_no_weight_reaches_costs_nothing(level, mode):
    world = drawn(0, SIZES["medium"])
    reached = [w for t in TRAJECTORIES for w in exact.weights(world, t, Setting(level))]
    assert 1 / UPPER < min(reached) <= max(reached) < UPPER
    setting = Setting(level, mode, UPPER, 1 / UPPER)
    assert exact.minus(exact.expected(world, setting), exact.expected(world, Setting(level))) == {}
    ours.assert_close(expected(world, setting), exact.expected(world, Setting(level)))


def test_the_veto_never_costs_more_than_what_it_rejects_was_worth():
    world = drawn(0, SIZES["large"])
    rejected = sum(vetoed(world, t) for t in TRAJECTORIES)
    largest = max(exact.square(exact.estimate(world, t)) for t in TRAJECTORIES if vetoed(world, t))
    bias = exact.minus(expected(world, Setting("sequence", veto=VETO)), exact.expected(world.on_policy))
    assert 0 < exact.square(bias) <= float(rejected**2 * largest)
