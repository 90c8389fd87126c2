"""What each rank holds in an optimizer step, and what one process would make of all of it."""

import math

import pytest

from lightning_rollout_is import RolloutISMetrics
from tests.reference.detail_oracle import details
from tests.reference.oracle import metrics
from tests.trainer.policy import rollout_batch


def batch(seed, rows, length, mismatch=0.5):
    """In float64, so that a difference is the sync's, not a rounding's."""
    made = rollout_batch(seed, rows, length, mismatch)
    return {key: value.double() if value.is_floating_point() else value for key, value in made.items()}


BATCHES = [batch(0, 2, 5), batch(1, 4, 9, mismatch=3.0), batch(2, 1, 3), batch(3, 3, 1), batch(4, 2, 6)]
BATCHES[1]["rollout_log_prob"][:, 2] = math.nan  # missing tokens
BATCHES[3]["rollout_log_prob"] += 2.0  # weights far below 1
EMPTY = {key: value * 0 for key, value in BATCHES[0].items()}
EQUAL = [{**one, "rollout_log_prob": one["old_log_prob"]} for one in BATCHES]

SHARES = {
    "uneven rows, lengths and micro-batches": [BATCHES[:1], BATCHES[1:3], BATCHES[3:]],
    "a rank has no data": [BATCHES[:2], [], BATCHES[2:]],
    "rank 0 has no data": [[], BATCHES, BATCHES[:1]],
    "a rank has no valid token": [BATCHES[:2], [EMPTY], [EMPTY, *BATCHES[2:]]],
    "no rank has a valid token": [[EMPTY], [EMPTY], []],
    "one rank alone rejects": [EQUAL[:2], BATCHES[1:2], EQUAL[2:]],
}


def shares_of(name, world):
    """The shares of a smaller world: the last rank takes over what is left."""
    shares = SHARES[name]
    return [*shares[: world - 1], [one for share in shares[world - 1 :] for one in share]]


def fed(metric, share):
    """The metric after a rank's micro-batches."""
    if not share:
        metric._update_count = 1  # an idle rank; its warning is not what is tested here
    for one in share:
        metric.update(one["old_log_prob"], one["rollout_log_prob"], one["response_mask"])
    return metric


def floats(values):
    return {name: value.item() for name, value in values.items()}


def computed(rank, group, config, shares, **kwargs):
    """All values on one rank."""
    return floats(fed(RolloutISMetrics(config, details=True, process_group=group, **kwargs), shares[rank]).compute())


def expected(shares, config):
    """What one process gets from all rows, by the independent oracle."""
    rows = [
        [row.tolist() for share in shares for one in share for row in one[key].double()]
        for key in ("old_log_prob", "rollout_log_prob", "response_mask")
    ]
    settings = config.rollout_is_level, config.rollout_is_mode, config.upper, config.lower, config.veto
    return metrics(*rows, *settings) | details(*rows, *settings)


def assert_equal_one_process(found, shares, config):
    """Every rank has every key, with the value of one process to 1e-6 relative; NaN where that one has no value."""
    right = expected(shares, config)
    for values in found:
        values = {name.removeprefix("mismatch/"): value for name, value in values.items()}
        defined = {name: value for name, value in values.items() if not math.isnan(value)}
        right_defined = {name: value for name, value in right.items() if not math.isnan(value)}
        assert defined == pytest.approx(right_defined, rel=1e-6, abs=1e-12)
        assert list(values) == [name.removeprefix("mismatch/") for name in found[0]]
