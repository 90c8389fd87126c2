"""Ranks with different settings: refused on all of them before training, since their sums must not be added."""

import pytest

from tests.distributed.shares import batch
from tests.distributed.trainer_runs import run
from tests.trainer.policy import ALGORITHM, Policy

pytestmark = pytest.mark.timeout(120)

BATCHES = [batch(seed, rows=2, length=4) for seed in range(2)]
SEQUENCE = {**ALGORITHM, "rollout_is_level": "sequence"}
OFF = {"rollout_is_threshold": None}


def configured(rank, group, odd, given, every):
    """Trains with settings of its own on one rank."""
    module = Policy()
    module.configure_rollout_is(**{"algorithm": ALGORITHM, **(given if rank == odd else {})})
    return run(module, BATCHES, None, every=every if rank == odd else 1)


@pytest.mark.parametrize(
    ("given", "every", "difference"),
    [
        ({"algorithm": {**ALGORITHM, "rollout_is_threshold": 3.0}}, 1, "rollout_is_threshold = 3.0 (rank 0: 2.0)"),
        ({"algorithm": SEQUENCE}, 1, "rollout_is_level = 'sequence' (rank 0: 'token')"),
        ({"groups": ["math"]}, 1, "groups = ('math',) (rank 0: ())"),
        ({"details": False}, 1, "details = False (rank 0: True)"),
        ({"algorithm": OFF}, 1, "rollout_is_threshold = None (rank 0: 2.0)"),
        ({}, 2, "every_n_steps = 2 (rank 0: 1)"),
    ],
)
def test_ranks_that_differ_are_refused_on_all_of_them(ranks, given, every, difference):
    outcomes = ranks.call(configured, 1, given, every)
    assert [started for started, _, _ in outcomes] == [0, 0, 0]
    assert all("different settings of rollout importance sampling" in error for _, error, _ in outcomes)
    assert f"rank 1 has {difference};" in outcomes[1][1]
    assert "another" in outcomes[0][1]
    assert "another" in outcomes[2][1]


@pytest.mark.parametrize(
    ("given", "difference"),
    [
        ({"groups": ["math"]}, "groups = () (rank 0: ('math',));"),
        ({"algorithm": OFF}, "rollout_is_threshold = 2.0 (rank 0: None);"),
    ],
)
def test_the_first_rank_may_be_the_odd_one(ranks, given, difference):
    first, *others = ranks.call(configured, 0, given, 1)
    assert "another" in first[1]
    assert all(f" has {difference}" in error for _, error, _ in others)


@pytest.mark.parametrize("given", [{}, {"groups": ["math", "code"]}, {"algorithm": OFF}])
def test_ranks_that_agree_train(ranks, given):
    assert [(started, error) for started, error, _ in ranks.call(configured_alike, given)] == [(2, None)] * 3


def configured_alike(rank, group, given):
    return configured(rank, group, rank, given, 1)
