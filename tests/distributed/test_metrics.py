"""Ranks together give what one process gets from all their batches."""

import math

import pytest
import torch

import lightning_rollout_is
from lightning_rollout_is import RolloutISConfig, RolloutISMetrics
from tests.trainer.policy import rollout_batch
from tests.trainer.runs import expected

BATCHES = [
    rollout_batch(0, rows=2, length=5),
    rollout_batch(1, rows=4, length=5, mismatch=3.0),
    rollout_batch(2, rows=1, length=5),
]
EMPTY = {key: value * 0 for key, value in BATCHES[0].items()}
SHARES = {
    "uneven": [BATCHES[:1], BATCHES[1:]],
    "one rank has no update": [[], BATCHES],
    "one rank has no valid token": [[EMPTY], BATCHES],
    "no rank has a valid token": [[EMPTY], [EMPTY]],
}


def computed(rank, config, shares, name="RolloutISMetrics"):
    torch.distributed.barrier()
    metric = fed(getattr(lightning_rollout_is, name)(config), shares[rank])
    value = metric.compute()
    return {key: x.item() for key, x in value.items()} if isinstance(value, dict) else value.item()


def fed(metric, batches):
    if not batches:
        metric._update_count = 1  # an idle rank; its warning is not what is tested here
    for batch in batches:
        metric.update(batch["old_log_prob"], batch["rollout_log_prob"], batch["response_mask"])
    return metric


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES.keys())
def test_two_ranks_equal_one_process(ranks, level, shares):
    upper = 1.001 if level == "geometric" else 2.0
    config = RolloutISConfig(upper, rollout_is_level=level, rollout_is_mode="mask", rollout_is_veto_threshold=0.2)
    first, second = ranks.call(computed, config, shares)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value == second[name] or (math.isnan(value) and math.isnan(second[name]))
    defined = {name.removeprefix("mismatch/"): value for name, value in first.items() if not math.isnan(value)}
    everything = [batch for share in shares for batch in share]
    assert defined == pytest.approx(
        {name: value for name, value in expected(everything, config).items() if not math.isnan(value)},
        rel=1e-6,
        abs=1e-7,
    )


@pytest.mark.parametrize("name", ["EffectiveSampleSize", "PerplexityRatio", "MaskedFraction"])
def test_single_metrics_synchronise(ranks, name):
    config = RolloutISConfig(2.0, rollout_is_mode="mask")
    keys = {
        "EffectiveSampleSize": "rollout_is_eff_sample_size",
        "PerplexityRatio": "mismatch_ppl_ratio",
        "MaskedFraction": "rollout_is_masked_fraction",
    }
    values = ranks.call(computed, config, SHARES["uneven"], name)
    assert values == [pytest.approx(expected(BATCHES, config)[keys[name]], rel=1e-6)] * 2


def counts_around_a_second_compute(rank, config):
    metric = RolloutISMetrics(config)
    counts = []
    for _ in range(2):
        fed(metric, BATCHES[:1])
        with metric.sync_context():
            counts.append(metric.packing.unpack(metric.packed)[0][0].tokens.item())
    return counts


def test_computing_does_not_count_the_other_ranks_twice(ranks):
    valid = BATCHES[0]["response_mask"].sum().item()
    assert ranks.call(counts_around_a_second_compute, RolloutISConfig(2.0)) == [[2 * valid, 4 * valid]] * 2


def collectives_of_an_update_and_a_compute(rank, config):
    calls = []

    def counted(collective):
        return lambda *args, **kwargs: calls.append(collective) or collective(*args, **kwargs)

    names = ("all_gather", "barrier", "all_reduce", "all_gather_into_tensor", "broadcast")
    originals = {name: getattr(torch.distributed, name) for name in names}
    for name, collective in originals.items():
        setattr(torch.distributed, name, counted(collective))
    try:
        metric = fed(RolloutISMetrics(config), BATCHES[:1])
        before = len(calls)
        metric.compute()
    finally:
        for name, collective in originals.items():
            setattr(torch.distributed, name, collective)
    return before, len(calls)


def test_update_has_no_collective_and_compute_has_one(ranks):
    assert ranks.call(collectives_of_an_update_and_a_compute, RolloutISConfig(2.0)) == [(0, 1)] * 2
