"""Ranks together give what one process gets from all their batches, at the cost of one collective."""

import math

import pytest
import torch

import lightning_rollout_is
from lightning_rollout_is import RolloutISConfig, RolloutISMetrics
from tests.distributed.shares import BATCHES, SHARES, assert_equal_one_process, computed, expected, fed, shares_of

pytestmark = pytest.mark.timeout(120)


def config_of(level, mode="mask"):
    upper = 1.001 if level == "geometric" else 2.0
    return RolloutISConfig(upper, rollout_is_level=level, rollout_is_mode=mode, rollout_is_veto_threshold=0.2)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("name", SHARES)
def test_ranks_equal_one_process(ranks, name, level, world):
    shares, config = shares_of(name, world), config_of(level)
    found = ranks.call(computed, config, shares, world=world)
    assert len(found) == world
    assert_equal_one_process(found, shares, config)


def test_truncation_has_two_keys_less(ranks):
    shares, config = shares_of("uneven rows, lengths and micro-batches", 3), config_of("token", "truncate")
    found = ranks.call(computed, config, shares)
    assert len(found[0]) == 28 + 34
    assert not any("masked_fraction" in name for name in found[0])
    right = {name: value for name, value in expected(shares, config).items() if "masked_fraction" not in name}
    defined = {name.removeprefix("mismatch/"): value for name, value in found[2].items() if not math.isnan(value)}
    assert defined == pytest.approx(right, rel=1e-6)


def test_the_shares_can_tell(ranks):
    """The rows differ so much that a mean of means, or a rank left out, would show."""
    shares, config = shares_of("uneven rows, lengths and micro-batches", 3), config_of("token")
    whole = expected(shares, config)
    alone = [expected([share], config) for share in shares]
    # The middle of a bin is the same for all values in it, and short responses leave tenths of the profile empty.
    exact = [name for name in whole if "log_ratio_p" not in name and all(name in part for part in alone)]
    assert len(exact) > 40
    for name in exact:
        value = whole[name]
        assert sum(part[name] for part in alone) / 3 != pytest.approx(value, rel=1e-4), name
    assert sum(share == [] for share in SHARES["a rank has no data"]) == 1
    assert not any(math.isnan(value) for value in whole.values())
    rejecting = [
        expected([share], config)["rollout_is_masked_fraction"] > 0 for share in SHARES["one rank alone rejects"]
    ]
    assert rejecting == [False, True, False]


def single_value(rank, group, name, config, shares):
    return fed(getattr(lightning_rollout_is, name)(config, process_group=group), shares[rank]).compute().item()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("CatastrophicTokenFraction", "rollout_is_catastrophic_token_fraction"),
        ("EffectiveSampleSize", "rollout_is_eff_sample_size"),
        ("ImportanceWeightMax", "rollout_is_max"),
        ("ImportanceWeightMean", "rollout_is_mean"),
        ("ImportanceWeightStd", "rollout_is_std"),
        ("MaskedFraction", "rollout_is_masked_fraction"),
        ("PerplexityRatio", "mismatch_ppl_ratio"),
        ("RolloutKL", "mismatch_k3_kl"),
        ("VetoFraction", "rollout_is_veto_fraction"),
    ],
)
def test_single_metrics_synchronise(ranks, name, key):
    shares, config = shares_of("uneven rows, lengths and micro-batches", 3), config_of("token")
    right = pytest.approx(expected(shares, config)[key], rel=1e-6)
    assert ranks.call(single_value, name, config, shares) == [right] * 3


COLLECTIVES = (
    *("all_gather", "all_gather_into_tensor", "all_gather_single", "all_gather_object"),
    *("all_reduce", "barrier", "broadcast"),
)


def collectives_of_an_update_and_a_compute(rank, group, config):
    calls = []

    def counted(collective):
        return lambda *args, **kwargs: calls.append(collective) or collective(*args, **kwargs)

    originals = {name: getattr(torch.distributed, name) for name in COLLECTIVES if hasattr(torch.distributed, name)}
    for name, collective in originals.items():
        setattr(torch.distributed, name, counted(collective))
    try:
        metric = fed(RolloutISMetrics(config), BATCHES[:1])
        metric.record_fault("unfit_inputs")
        before = len(calls)
        metric.compute()
    finally:
        for name, collective in originals.items():
            setattr(torch.distributed, name, collective)
    return before, len(calls)


def test_update_has_no_collective_and_compute_has_one(ranks):
    assert ranks.call(collectives_of_an_update_and_a_compute, RolloutISConfig(2.0)) == [(0, 1)] * 3


def faults_seen(rank, group, config):
    metric = RolloutISMetrics(config, process_group=group)
    fed(metric, BATCHES[:1])
    if rank == 1:
        metric.record_fault("absent_rollout_log_prob")
    metric.reset_statistics()
    fed(metric, BATCHES[1:2])
    metric.compute()
    seen = metric.faults.tolist()
    metric.reset()
    metric._update_count = 1
    metric.compute()
    return seen, metric.faults.max().item()


@pytest.mark.parametrize("world", [2, 3])
def test_a_fault_of_one_rank_reaches_all_and_outlasts_unread_statistics(ranks, world):
    seen = [0.0, 1.0, 0.0, 0.0, 0.0]
    assert ranks.call(faults_seen, RolloutISConfig(2.0), world=world) == [(seen, -math.inf)] * world


def test_maxima_lie_where_the_packing_says():
    packing = RolloutISMetrics(config_of("token")).packing
    vector = torch.arange(len(packing.empty()))
    for statistic, (_, maxima) in zip(packing.statistics, packing.unpack(vector), strict=True):
        assert vector[packing.maxima_of(statistic)].tolist() == [entry.item() for entry in maxima]


PACKED = {key: value.flatten() for key, value in BATCHES[4].items()}


def faults_of_values(rank, group, config, shares):
    metric = RolloutISMetrics(config)
    for one, boundaries in shares[rank]:
        tokens = one["old_log_prob"], one["rollout_log_prob"], one["response_mask"]
        metric.update(*tokens, cu_seqlens=torch.tensor(boundaries, dtype=torch.int32))
    metric.compute()
    return metric.faults.tolist()


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_malformed_values_of_one_rank_reach_all(ranks, level):
    count = len(PACKED["response_mask"])
    good, unfit = (PACKED, [0, 5, count]), (PACKED, [0, 5, count + 1])
    half = {**PACKED, "response_mask": PACKED["response_mask"] * 0.5}, [0, 5, count]
    for share, seen in (([good], [0.0, 0.0]), ([good, unfit], [0.0, 1.0]), ([half, good], [1.0, 0.0])):
        found = ranks.call(faults_of_values, config_of(level), [[good], share, [good]])
        assert found == [[0.0, 0.0, 0.0, *seen]] * 3
