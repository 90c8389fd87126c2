"""Trainers over several ranks: under DDP and FSDP2 here, and as a user starts them."""

import subprocess
import sys

import pytest

from lightning_rollout_is import RolloutISConfig
from tests.distributed.script import ROLLOUTS
from tests.distributed.shares import assert_equal_one_process, batch, expected
from tests.distributed.trainer_runs import train, train_sharded
from tests.trainer.policy import ALGORITHM
from tests.trainer.runs import curves

pytestmark = pytest.mark.timeout(150)

CONFIG = RolloutISConfig.from_mapping(ALGORITHM)
LAUNCHERS = {
    "devices=2": [],
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
}
UNEVEN = [[batch(7 * rank + i, rows=1 + rank, length=4 + i) for i in range(4)] for rank in range(3)]


def windows(shares, accumulate):
    """What the ranks hold in each optimizer step."""
    starts = range(0, len(shares[0]), accumulate)
    return [[share[start : start + accumulate] for share in shares] for start in starts]


def assert_curves_are_exact(folder, shares, accumulate):
    written = curves(folder)
    steps = windows(shares, accumulate)
    for step, window in enumerate(steps):
        for name, value in expected(window, CONFIG).items():
            # Event files hold float32.
            assert dict(written[f"mismatch/{name}"])[step] == pytest.approx(value, rel=2e-6, abs=1e-6), name
    assert len(written["mismatch/mismatch_kl"]) == len(steps)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_started_as_users_do(tmp_path, launcher):
    command = [sys.executable, *LAUNCHERS[launcher], "-m", "tests.distributed.script", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert_curves_are_exact(tmp_path, ROLLOUTS, accumulate=2)
    assert run.returncode != 0
    said = [(tmp_path / f"rank{rank}.txt").read_text().split(maxsplit=1) for rank in range(2)]
    assert "rollout_log_prob is not a tensor on at least one rank" in said[0][1]
    assert said[1][1] == said[0][1]
    assert max(float(seconds) for seconds, _ in said) < 10
    assert said[0][1] in run.stderr


def assert_points(outcomes, folder, shares, accumulate=1):
    """Exact in the one file of events, which rank 0 wrote, and in every rank's callback metrics."""
    assert len(list(folder.glob("events*"))) == 1
    assert_curves_are_exact(folder, shares, accumulate)
    for step, window in enumerate(windows(shares, accumulate)):
        found = [values[(step + 1) * accumulate - 1] for _, error, values in outcomes if error is None]
        assert len(found) == 3
        # What is not defined at this step keeps its last value.
        names = {f"mismatch/{name}" for name in expected(window, CONFIG)}
        found = [{name: value for name, value in values.items() if name in names} for values in found]
        assert_equal_one_process(found, window, CONFIG)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_rank_computes_and_rank_0_writes(ranks, tmp_path, accumulate):
    outcomes = ranks.call(train_accumulating, UNEVEN, tmp_path, accumulate)
    assert_points(outcomes, tmp_path, UNEVEN, accumulate)


def train_accumulating(rank, group, shares, folder, accumulate):
    return train(rank, group, shares, folder, accumulate_grad_batches=accumulate)


def test_in_shards(ranks, tmp_path):
    assert_points(ranks.call(train_sharded, UNEVEN, tmp_path, 3), tmp_path, UNEVEN)


def test_in_copies(ranks, tmp_path):
    """Three ranks with the same rows, as under tensor parallelism, count them once."""
    outcomes = ranks.call(train_sharded, [UNEVEN[1]] * 3, tmp_path, 1)
    assert_points(outcomes, tmp_path, [UNEVEN[1]])
