"""What each level does to the expected gradient, without bounds."""

import itertools
from fractions import Fraction

import pytest
import torch

from tests.estimators import exact, ours, theory
from tests.estimators.exact import PREFIXES, TOKENS, TRAJECTORIES, Setting
from tests.estimators.worlds import SIZES, drawn, mismatched_at

LEVELS = ("none", "token", "sequence", "geometric")
WORLDS = [pytest.param(drawn(seed, size), id=name) for seed, (name, size) in enumerate(SIZES.items())]


def expected(world, setting, mode="seq-mean-token-sum"):
    """By the library: each trajectory in a batch of its own, summed with the probability that it is sampled."""
    module = ours.tabular(world.train, setting)
    return exact.gradient_sum(
        (float(exact.probability(world.rollout, t)), ours.estimate(module, world, t, mode))
        for t in exact.possible(world.rollout)
    )


def gradient_of_the_return(world):
    """Of the expected advantage as a function of the logits, by autograd, without any estimator."""
    module, batch = ours.tabular(world.train), ours.batch_of(world, TRAJECTORIES)
    log_prob = module.logits.log_softmax(-1)[batch.prefix, batch.token]
    return module.ascent(-(log_prob.where(batch.mask == 1, 0.0).sum(1).exp() * batch.advantages).sum())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("world", WORLDS)
def test_each_trajectory_has_the_gradient_that_its_fractions_give(world, level):
    setting = Setting(level)
    module = ours.tabular(world.train, setting)
    for trajectory in TRAJECTORIES:
        ours.assert_close(ours.estimate(module, world, trajectory), exact.estimate(world, trajectory, setting))


@pytest.mark.parametrize("world", WORLDS)
def test_the_sequence_level_is_the_gradient_on_policy(world):
    assert exact.bias(world, Setting("sequence")) == {}
    found = expected(world, Setting("sequence"))
    ours.assert_close(found, theory.policy_gradient(world.on_policy))
    ours.assert_close(found, gradient_of_the_return(world))
    ours.assert_close(found, expected(world.on_policy, Setting()))
    assert exact.square(exact.bias(world)) > 0  # or there would be nothing to correct


@pytest.mark.parametrize("world", WORLDS)
def test_the_token_level_takes_states_and_values_from_the_rollout_policy(world):
    setting = Setting("token")
    assert exact.minus(exact.expected(world, setting), theory.policy_gradient(world)) == {}
    ours.assert_close(expected(world, setting), theory.policy_gradient(world))
    assert exact.square(exact.bias(world, setting)) > 0


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_mismatched_position_is_right_at_the_token_level_and_all_others_are_not(position):
    world = mismatched_at(drawn(0, SIZES["large"]), position)
    right, found = theory.policy_gradient(world.on_policy), expected(world, Setting("token"))
    wrong = {len(p) for p, t in itertools.product(PREFIXES, TOKENS) if abs(found[p, t] - right[p, t]) > 1e-3}
    assert wrong == {0, 1, 2} - {position}
    assert {len(prefix) for prefix, _ in exact.bias(world, Setting("token"))} == wrong


@pytest.mark.parametrize("level", LEVELS)
def test_how_fast_the_bias_of_each_level_grows(level):
    step = Fraction(1, 10**5)
    world = drawn(0, step)
    rates = {p + t: world.rollout[p][t] / world.train[p][t] - 1 for p, t in itertools.product(PREFIXES, TOKENS)}
    slope = theory.slopes(world.on_policy, rates)[level]
    assert (exact.square(slope) == 0) == (level == "sequence")
    bias = exact.minus(expected(world, Setting(level)), expected(world.on_policy, Setting()))
    ours.assert_close(bias, slope, tolerance=1e-9)  # of about 1e-5
    assert level == "sequence" or max(abs(x) for x in slope.values()) > 1e-6


def test_a_response_of_one_token_is_alike_at_every_level():
    world = drawn(0, SIZES["large"])
    for level in ("token", "geometric"):
        exact_one = exact.estimate(world, ".", Setting("sequence"))
        ours.assert_close(ours.estimate(ours.tabular(world.train, Setting(level)), world, "."), exact_one)


def test_geometric_is_neither_on_policy_nor_the_token_level():
    world = drawn(0, SIZES["large"])
    found = expected(world, Setting("geometric"))
    for other in (theory.policy_gradient(world.on_policy), theory.policy_gradient(world), exact.expected(world)):
        assert exact.square(exact.minus(found, other)) > 1e-4


def test_the_weight_has_no_gradient_of_its_own():
    world = drawn(1, SIZES["large"])
    for level in LEVELS:
        module, total = ours.tabular(world.train, Setting(level)), {}
        for trajectory in TRAJECTORIES:
            batch = ours.batch_of(world, [trajectory])
            attached = batch._replace(old_log_prob=module.log_prob(batch) + 0.0)
            found = module.ascent(module.token_loss(attached).sum())
            exact.add(total, float(exact.probability(world.rollout, trajectory)), found)
        ours.assert_close(total, exact.expected(world, Setting(level)))


def test_log_probs_are_those_of_the_policy():
    world = drawn(0, SIZES["large"])
    batch = ours.batch_of(world, TRAJECTORIES)
    inside = batch.mask == 1
    assert inside.sum(1).tolist() == [len(t) for t in TRAJECTORIES]
    torch.testing.assert_close(ours.tabular(world.train).log_prob(batch)[inside], batch.old_log_prob[inside])
