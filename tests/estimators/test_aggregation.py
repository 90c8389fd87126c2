"""For which aggregation the sequence level is on policy, over every batch of two trajectories, of unequal length."""

import itertools
from fractions import Fraction

import pytest
import torch

from lightning_rollout_is import aggregate_loss, grpo_advantages
from tests.estimators import exact, ours
from tests.estimators.exact import TRAJECTORIES, Setting, probability
from tests.estimators.test_levels import expected
from tests.estimators.worlds import SIZES, drawn, mismatched_at

SEQUENCE = Setting("sequence")
WORLD = drawn(0, SIZES["large"])
PAIRS = list(itertools.combinations_with_replacement(TRAJECTORIES, 2))
SCALE = {  # of a trajectory in a batch with another one
    "token-mean": lambda t, other: Fraction(1, len(t) + len(other)),
    "seq-mean-token-sum": lambda t, other: Fraction(1, 2),
    "seq-mean-token-mean": lambda t, other: Fraction(1, 2 * len(t)),
}


def chance(world, pair):
    """Of a batch of these two, in any order."""
    orders = 1 if pair[0] == pair[1] else 2
    return orders * probability(world.rollout, pair[0]) * probability(world.rollout, pair[1])


def expected_of_pairs(world, mode, advantages=None, **options):
    """By the library: mean of the gradients of all batches of two."""
    module, total = ours.tabular(world.train, SEQUENCE), {}
    for pair in PAIRS:
        batch = ours.batch_of(world, pair)
        batch = batch if advantages is None else batch._replace(advantages=advantages(batch.advantages))
        found = module.ascent(aggregate_loss(module.token_loss(batch), batch.mask, mode, **options))
        exact.add(total, float(chance(world, pair)), found)
    return total


def exact_of_pairs(world, mode):
    total = {}
    for pair in PAIRS:
        for trajectory, other in (pair, pair[::-1]):
            scale = chance(world, pair) * SCALE[mode](trajectory, other)
            exact.add(total, scale, exact.estimate(world, trajectory, SEQUENCE))
    return total


def times(scale, gradient):
    return exact.gradient_sum([(scale, gradient)])


@pytest.mark.parametrize("mode", SCALE)
def test_batches_of_two_have_the_mean_that_their_fractions_give(mode):
    ours.assert_close(expected_of_pairs(WORLD, mode), exact_of_pairs(WORLD, mode))


def test_sum_over_tokens_and_mean_over_sequences_is_the_gradient_of_the_return():
    on_policy = exact.expected(WORLD.on_policy)
    assert exact.minus(exact_of_pairs(WORLD, "seq-mean-token-sum"), on_policy) == {}


def test_mean_over_tokens_and_then_over_sequences_is_what_it_is_on_policy():
    on_policy = exact.expected(WORLD.on_policy, per=len)
    assert exact.minus(exact_of_pairs(WORLD, "seq-mean-token-mean"), on_policy) == {}
    ours.assert_close(expected(WORLD, SEQUENCE, "seq-mean-token-mean"), on_policy)
    # Which is not the gradient of the return: it pulls at short responses.
    assert exact.square(exact.minus(on_policy, exact.expected(WORLD.on_policy))) > Fraction(1, 100)


def test_token_mean_over_the_count_of_the_batch_is_off():
    found, on_policy = (exact_of_pairs(world, "token-mean") for world in (WORLD, WORLD.on_policy))
    assert exact.square(exact.minus(found, on_policy)) > exact.square(on_policy) / 20**2


def test_token_mean_is_on_policy_where_responses_are_as_long_as_on_policy():
    world = mismatched_at(WORLD, 2)  # a third token is the last one, whichever it is
    on_policy = exact_of_pairs(world.on_policy, "token-mean")
    assert exact.minus(exact_of_pairs(world, "token-mean"), on_policy) == {}
    ours.assert_close(expected_of_pairs(world, "token-mean"), on_policy)


def test_token_mean_of_one_response_is_on_policy():
    on_policy = exact.expected(WORLD.on_policy, per=len)
    ours.assert_close(expected(WORLD, SEQUENCE, "token-mean"), on_policy)


def test_token_mean_over_a_fixed_count_is_the_gradient_of_the_return_up_to_that_count():
    found = expected_of_pairs(WORLD, "token-mean", denominator=5)
    ours.assert_close(found, times(Fraction(2, 5), exact.expected(WORLD.on_policy)))


def test_a_baseline_of_the_group_shortens_the_gradient_and_turns_it_nowhere():
    def centred(rewards):
        return grpo_advantages(rewards, torch.zeros(2, dtype=torch.int64), norm_by_std=False)

    found = expected_of_pairs(WORLD, "seq-mean-token-sum", advantages=centred)
    ours.assert_close(found, times(Fraction(1, 2), exact.expected(WORLD.on_policy)))


def test_advantages_over_their_standard_deviation_are_not_corrected():
    def standardised(rewards):
        return grpo_advantages(rewards, torch.zeros(2, dtype=torch.int64))

    found, on_policy = (
        expected_of_pairs(world, "seq-mean-token-sum", advantages=standardised) for world in (WORLD, WORLD.on_policy)
    )
    assert exact.square(exact.minus(found, on_policy)) > exact.square(on_policy) / 10**4
