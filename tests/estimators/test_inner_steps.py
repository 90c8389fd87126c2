"""Three policies at once: one sampled, one weighed the responses, and the current one has moved on from it."""

import math
from fractions import Fraction

import pytest

from lightning_rollout_is import aggregate_loss, reinforce_loss
from tests.estimators import exact, ours
from tests.estimators.exact import TRAJECTORIES, Setting, probability, steps
from tests.estimators.worlds import SIZES, drawn

OLD = drawn(0, SIZES["large"])
CURRENT = drawn(3, SIZES["large"]).train
LOW, HIGH, DUAL = Fraction(21, 100), Fraction(31, 100), Fraction(151, 100)  # no ratio is at a kink
CLIPS = {"clip_ratio_low": float(LOW), "clip_ratio_high": float(HIGH), "clip_ratio_c": float(DUAL)}


def ratio(prefix, token):
    return CURRENT[prefix][token] / OLD.train[prefix][token]


def clipped(prefix, token, advantage):
    """Where the loss is flat."""
    moved = ratio(prefix, token)
    return moved > 1 + HIGH if advantage > 0 else moved < 1 - LOW or moved > DUAL


def clipped_estimate(world, trajectory, setting):
    total, advantage = {}, world.advantage[trajectory]
    for (prefix, token), weight in zip(steps(trajectory), exact.weights(world, trajectory, setting), strict=True):
        if not clipped(prefix, token, advantage):
            exact.add(total, weight * ratio(prefix, token) * advantage, exact.score(CURRENT, prefix, token))
    return total


def found(module, trajectory):
    batch = ours.batch_of(OLD, [trajectory])
    return module.ascent(aggregate_loss(module.token_loss(batch, **CLIPS), batch.mask, "seq-mean-token-sum"))


def test_every_clip_decides_somewhere_and_not_everywhere():
    moved = [(ratio(p, t), OLD.advantage[trajectory]) for trajectory in TRAJECTORIES for p, t in steps(trajectory)]
    assert any(r > 1 + HIGH and a > 0 for r, a in moved)
    assert any(r < 1 - LOW and a < 0 for r, a in moved)
    assert any(r > DUAL and a < 0 for r, a in moved)
    assert any(r < 1 - LOW and a > 0 for r, a in moved)
    assert any(1 + HIGH < r < DUAL and a < 0 for r, a in moved)


@pytest.mark.parametrize("level", ["none", "token", "sequence", "geometric"])
def test_each_trajectory_after_some_steps(level):
    module = ours.tabular(CURRENT, Setting(level))
    for trajectory in TRAJECTORIES:
        ours.assert_close(found(module, trajectory), clipped_estimate(OLD, trajectory, Setting(level)))


def test_the_sequence_level_is_ppo_on_samples_of_the_old_policy():
    module = ours.tabular(CURRENT, Setting("sequence"))
    mean = exact.gradient_sum((float(probability(OLD.rollout, t)), found(module, t)) for t in TRAJECTORIES)
    on_policy = exact.gradient_sum(
        (probability(OLD.train, t), clipped_estimate(OLD.on_policy, t, Setting())) for t in TRAJECTORIES
    )
    ours.assert_close(mean, on_policy)
    assert exact.square(on_policy) > Fraction(1, 100)


def test_reinforce_is_the_same_as_long_as_the_policy_has_not_moved():
    world, setting = OLD, Setting("sequence")
    module, total = ours.tabular(world.train, setting), {}
    for trajectory in TRAJECTORIES:
        batch = ours.batch_of(world, [trajectory])
        loss = reinforce_loss(module.log_prob(batch), batch.advantages, batch.mask)
        weight = module.rollout_is_weights(batch.old_log_prob, batch.rollout_log_prob, batch.mask)
        gradient = module.ascent(aggregate_loss(loss * weight, batch.mask, "seq-mean-token-sum"))
        exact.add(total, float(probability(world.rollout, trajectory)), gradient)
    ours.assert_close(total, exact.expected(world.on_policy))
    assert all(math.isfinite(value) for value in total.values())
