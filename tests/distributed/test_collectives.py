"""A logged optimizer step costs one collective more than the same step without the plugin; all else costs none."""

from collections import Counter

import pytest

from tests.distributed.collective_runs import collectives, stock_collectives
from tests.distributed.shares import batch
from tests.trainer.policy import ALGORITHM

pytestmark = pytest.mark.timeout(120)

SHARES = [[batch(7 * rank + i, rows=1 + rank, length=4 + i) for i in range(5)] for rank in range(3)]
MONITOR = {**ALGORITHM, "rollout_is": False}
OFF = {**ALGORITHM, "rollout_is_threshold": None}


RUNS = {
    "each step": (ALGORITHM, 1, 1, [1, 1, 1, 1, 1, 0]),
    "monitored": (MONITOR, 1, 1, [1, 1, 1, 1, 1, 0]),
    "steps of 2 batches": (ALGORITHM, 1, 2, [0, 1, 0, 1, 1, 0]),
    "steps of 3 batches": (ALGORITHM, 1, 3, [0, 0, 1, 0, 1, 0]),
    # After the last batch: a window that was not written may hold a fault of one rank.
    "every 2nd step": (ALGORITHM, 2, 1, [0, 1, 0, 1, 0, 1]),
    "every 5th step": (ALGORITHM, 5, 1, [0, 0, 0, 0, 1, 0]),
    "every 2nd step of 2 batches": (ALGORITHM, 2, 2, [0, 0, 0, 1, 0, 1]),
    "off": (OFF, 1, 1, [0, 0, 0, 0, 0, 0]),
    "off, steps of 2 batches": (OFF, 1, 2, [0, 0, 0, 0, 0, 0]),
}


@pytest.mark.parametrize("name", RUNS)
def test_one_collective_in_a_logged_step_and_none_elsewhere(ranks, name):
    algorithm, every, accumulate, added = RUNS[name]
    with_plugin = ranks.call(collectives, SHARES, algorithm, every, accumulate)
    without = ranks.call(collectives, SHARES, None, every, accumulate)
    for counts, plain in zip(with_plugin, without, strict=True):
        differences = [Counter(one) for one in counts]
        for difference, one in zip(differences, plain, strict=True):
            difference.subtract(one)
        names = {name for difference in differences for name, count in difference.items() if count}
        # Of one kind, and neither a barrier nor an exchange of sizes with it.
        assert names <= {"allgather_", "_allgather_base_"}
        assert [sum(difference.values()) for difference in differences] == added


def test_the_count_sees_what_others_call(ranks):
    """DDP reduces the gradient in each batch, and torchmetrics waits at a barrier before it gathers a scalar."""
    for counts in ranks.call(collectives, SHARES, None, 1, 1):
        assert [one["allreduce_"] > 0 for one in counts] == [True] * 5 + [False]
    for counts in ranks.call(stock_collectives, 4):
        assert counts == {"barrier": 4, "allgather_": 4}
