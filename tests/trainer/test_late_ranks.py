"""Values that take their time to the host, on several ranks: the same hook and the same words on all of them."""

import pytest

from lightning_rollout_is import RolloutISCallback
from lightning_rollout_is.callbacks.transfer import Transfer
from tests.distributed.ranks import Ranks
from tests.distributed.shares import batch
from tests.distributed.trainer_runs import train
from tests.trainer.late import LateTransfer
from tests.trainer.policy import ALGORITHM
from tests.trainer.runs import curves

pytestmark = pytest.mark.timeout(120)

GOOD = [batch(seed, rows=2, length=4) for seed in range(4)]


@pytest.fixture(scope="module")
def ranks():
    pool = Ranks()
    yield pool
    pool.stop()


def train_late(rank, group, shares, folder=None, settings=None):
    RolloutISCallback.transfer = LateTransfer
    try:
        return train(rank, group, shares, folder, **(settings or {}))
    finally:
        RolloutISCallback.transfer = Transfer


def spoilt(position, rank=1, **changed):
    shares = [list(GOOD) for _ in range(3)]
    shares[rank][position] = {**GOOD[position], **changed}
    return shares


@pytest.mark.parametrize(("position", "started"), [(0, 1), (1, 3), (2, 4), (3, 4)])
def test_what_one_rank_refuses_stops_all_with_its_point(ranks, position, started):
    outcomes = ranks.call(train_late, spoilt(position, rollout_log_prob=None))
    assert [batches for batches, _, _ in outcomes] == [started] * 3
    (error,) = {error for _, error, _ in outcomes}
    assert error.startswith("rollout_log_prob is not a tensor on at least one rank")


def test_a_malformed_batch_of_one_rank_leaves_its_point_out_on_all(ranks, tmp_path):
    monitor = {"algorithm": {**ALGORITHM, "rollout_is": False}}
    malformed = spoilt(1, rank=2, response_mask=GOOD[1]["response_mask"] * 0.5)
    outcomes = ranks.call(train_late, malformed, tmp_path, monitor)
    assert {error for _, error, _ in outcomes} == {None}
    assert [step for step, _ in curves(tmp_path)["mismatch/mismatch_kl"]] == [0, 2, 3]
    assert outcomes[0][2] == outcomes[1][2] == outcomes[2][2]


def test_the_points_are_those_of_values_that_arrive_at_once(ranks, tmp_path):
    shares = [GOOD, GOOD[::-1], GOOD]
    ranks.call(train_late, shares, tmp_path / "late")
    ranks.call(train, shares, tmp_path / "at once")
    late, at_once = curves(tmp_path / "late"), curves(tmp_path / "at once")
    assert late == at_once
    assert len(late["mismatch/mismatch_kl"]) == 4
