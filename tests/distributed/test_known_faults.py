"""Faults that other libraries had over ranks and micro-batches, each with its input and the right value."""

import math

import pytest
import torch
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from lightning_rollout_is import ImportanceWeightMean, RolloutISConfig, RolloutISMetrics
from tests.distributed.shares import BATCHES, computed, fed, floats
from tests.trainer.policy import ALGORITHM, Policy

pytestmark = pytest.mark.timeout(120)

WIDE = RolloutISConfig(4.0)


def weighing(*rows):
    """A batch with these importance weights, a list of tokens for each sequence."""
    old = torch.tensor(rows, dtype=torch.float64).log()
    return {"old_log_prob": old - 1.0, "rollout_log_prob": torch.full_like(old, -1.0), "response_mask": old == old}


def together(ranks, *shares, config=WIDE):
    """The values that all ranks agree on."""
    found = ranks.call(computed, config, list(shares), world=len(shares))
    assert all(repr(values) == repr(found[0]) for values in found)
    return {name.removeprefix("mismatch/"): value for name, value in found[0].items()}


def computed_with_null_hooks(rank, group, config, shares):
    return computed(rank, group, config, shares, dist_sync_fn=None, distributed_available_fn=None)


def test_hooks_given_as_null_synchronise_like_the_default_ones(ranks):
    shares = [BATCHES[:1], BATCHES[1:]]
    found = ranks.call(computed_with_null_hooks, WIDE, shares, world=2)
    assert [repr(values) for values in found] == [repr(ranks.call(computed, WIDE, shares, world=2)[0])] * 2


@pytest.mark.parametrize("third", [[], [[]]], ids=["two ranks", "and an empty one"])
def test_standard_deviation_has_the_part_between_ranks(ranks, third):
    values = together(ranks, [weighing([1.0], [1.0])], [weighing([3.0], [3.0])], *third)
    assert values["rollout_is_std"] == pytest.approx(1.0, rel=1e-9)
    assert values["rollout_is_seq_std"] == pytest.approx(2 / math.sqrt(3), rel=1e-9)  # unbiased


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_extremes_are_neither_averaged_nor_scaled(ranks, level):
    config = RolloutISConfig(4.0 if level != "geometric" else 1.001, rollout_is_level=level)
    across = together(ranks, [weighing([2.0])], [weighing([1.0])], config=config)
    assert (across["rollout_is_max"], across["rollout_is_min"]) == pytest.approx((2.0, 1.0), rel=1e-9)
    within = together(ranks, [weighing([1.2]), weighing([3.0])], config=config)
    assert (within["rollout_is_max"], within["rollout_is_min"]) == pytest.approx((3.0, 1.2), rel=1e-9)


def test_a_key_is_reduced_by_what_it_is_not_by_how_it_is_spelt(ranks):
    values = together(ranks, [weighing([0.25])], [weighing([1.5])])
    assert values["rollout_is_seq_max_deviation"] == pytest.approx(0.75, rel=1e-9)  # of the smaller weight
    assert values["mismatch_log_ppl_diff_min"] == pytest.approx(-math.log(1.5), rel=1e-9)
    assert values["mismatch_log_ppl_diff_max"] == pytest.approx(math.log(4.0), rel=1e-9)
    assert values["rollout_is_seq_min"] == pytest.approx(0.25, rel=1e-9)


@pytest.mark.parametrize("over", ["micro-batches", "ranks"])
def test_effective_sample_size_is_not_an_average(ranks, over):
    one, two = weighing([1.0] * 4), weighing([2.0] * 4)
    values = together(ranks, [one, two]) if over == "micro-batches" else together(ranks, [one], [two])
    assert values["rollout_is_eff_sample_size"] == pytest.approx(0.9, rel=1e-9)


def test_number_of_micro_batches_scales_nothing(ranks):
    weights = [[0.5 + 0.2 * i, 1.0] for i in range(8)]
    whole = together(ranks, [weighing(*weights)])
    parts = [weighing(*weights[i : i + 2]) for i in range(0, 8, 2)]
    assert together(ranks, parts) == pytest.approx(whole, rel=1e-12, nan_ok=True)
    assert together(ranks, parts[:3], parts[3:]) == pytest.approx(whole, rel=1e-12, nan_ok=True)


def test_ranks_name_the_values_in_one_order(ranks):
    first, *others = ranks.call(computed, WIDE, [BATCHES[:1], BATCHES[1:], []])
    for other in others:
        assert str(other) == str(first)  # NaN is not equal to itself


def computed_after(rank, group, updates):
    metric = RolloutISMetrics(WIDE, process_group=group)
    for _ in range(updates[rank]):
        fed(metric, [weighing([1.0 + rank])])
    return metric.compute()["mismatch/rollout_is_mean"].item()


def test_ranks_may_update_unequally_often(ranks):
    assert ranks.call(computed_after, [3, 2], world=2) == [pytest.approx(7 / 5, rel=1e-9)] * 2


def computed_in(rank, group, dtypes):
    dtype, mask_dtype = dtypes[rank]
    metric = RolloutISMetrics(WIDE, process_group=group)
    if rank == 1:
        torch.nn.ModuleList([metric]).half()  # as `precision="16-true"` does
    kept = str(metric.packed.dtype)
    one = weighing([1.0 + rank])
    metric.update(one["old_log_prob"].to(dtype), one["rollout_log_prob"].to(dtype), one["response_mask"].to(mask_dtype))
    return kept, metric.compute()["mismatch/rollout_is_mean"].item()


def test_dtypes_may_differ_between_ranks(ranks):
    dtypes = [(torch.float64, torch.bool), (torch.bfloat16, torch.int64), (torch.float32, torch.float32)]
    found = ranks.call(computed_in, dtypes)
    # bfloat16 resolves log 2 - 1 = -0.3068 to a step of 2^-9.
    assert found == [("torch.float64", pytest.approx(2.0, rel=2e-3))] * 3
    assert len({value for _, value in found}) == 1


def forwarded(rank, group, shares):
    metric = ImportanceWeightMean(WIDE, process_group=group, dist_sync_on_step=True)
    one = shares[rank]
    return metric(one["old_log_prob"], one["rollout_log_prob"], one["response_mask"]).item()


def test_a_value_on_step_is_of_all_ranks(ranks):
    shares = [weighing([2.0]), weighing([1.0] * 99)]
    assert ranks.call(forwarded, shares, world=2) == [pytest.approx(1.01, rel=1e-9)] * 2


def test_states_go_where_the_module_goes():
    module = Policy()
    assert module.rollout_is_metrics in set(module.modules())
    assert module.to("meta").rollout_is_metrics.packed.is_meta
    module = module.to_empty(device="cpu")
    assert module.rollout_is_metrics.packed.device.type == "cpu"
    assert math.isnan(fed(module.rollout_is_metrics, []).compute()["mismatch/rollout_is_mean"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_states_go_to_the_gpu():
    module = Policy().cuda()
    fed(module.rollout_is_metrics, [{key: value.cuda() for key, value in weighing([2.0]).items()}])
    assert module.rollout_is_metrics.packed.is_cuda
    assert module.rollout_is_metrics.compute()["mismatch/rollout_is_mean"].item() == pytest.approx(2.0)


def tokens_of(metric):
    return metric.packing.unpack(metric.packed)[0][0].tokens.item()


def counts_around_a_second_compute(rank, group):
    metric = RolloutISMetrics(WIDE, process_group=group)
    counts = []
    for _ in range(2):
        fed(metric, [weighing([1.0])])
        metric.compute()
        with metric.sync_context():
            counts.append(tokens_of(metric))
    return counts


def test_computing_does_not_count_the_other_ranks_twice(ranks):
    assert ranks.call(counts_around_a_second_compute, world=2) == [[2.0, 4.0]] * 2


def updated_while_synced(rank, group):
    metric = fed(RolloutISMetrics(WIDE, process_group=group), [weighing([1.0])])
    metric.sync()
    try:
        fed(metric, [weighing([1.0])])
    except TorchMetricsUserError as refused:
        return str(refused)


def test_an_update_while_synced_is_refused(ranks):
    for message in ranks.call(updated_while_synced, world=2):
        assert "holds the data of all ranks since sync(); call unsync() before update()" in message


def counted_with_replicas(rank, group, shares):
    """Ranks 0 and 1 hold different data; rank 2 holds a copy of rank 1's and pairs with nobody here."""
    module, naive = Policy(), Policy()
    module.configure_rollout_is(ALGORITHM, process_group=torch.distributed.new_group([0, 1]))
    found = []
    for metric in (module.rollout_is_metrics, naive.rollout_is_metrics):
        fed(metric, shares[rank])
        if rank < 2 or metric is naive.rollout_is_metrics:
            values = floats(metric.compute())
            with metric.sync_context():
                found.append((tokens_of(metric), values["mismatch/rollout_is_seq_std"]))
    return found


def test_copies_of_the_data_are_not_counted_again(ranks):
    data = [weighing([1.0, 1.0], [1.0, 1.0])], [weighing([3.0, 3.0])]
    first, second, copy = ranks.call(counted_with_replicas, [data[0], data[1], data[1]])
    assert first == second
    assert first[0] == (6.0, pytest.approx(2 / math.sqrt(3), rel=1e-9))
    # What this is there to prevent.
    assert first[1] == copy[0] == (8.0, pytest.approx(math.sqrt(4 / 3), rel=1e-9))
