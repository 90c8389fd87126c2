"""The vector of all ranks, as callbacks take it: made once for whoever asks, and never of yesterday."""

import pytest
import torch

from lightning_rollout_is import RolloutISCallback, RolloutISConfig, RolloutISMetrics
from tests.trainer.policy import ALGORITHM, Policy, rollout_batch
from tests.trainer.runs import fit

CHANGES = {
    "update": lambda metrics, batch: metrics.update(*batch),
    "reset": lambda metrics, batch: metrics.reset(),
    "reset_statistics": lambda metrics, batch: metrics.reset_statistics(),
    "record_fault": lambda metrics, batch: metrics.record_fault("unfit_inputs"),
    "merge_state": lambda metrics, batch: metrics.merge_state(metrics.clone()),
}


def tensors(seed):
    batch = rollout_batch(seed)
    return batch["old_log_prob"], batch["rollout_log_prob"], batch["response_mask"]


def metrics_with_a_batch():
    metrics = RolloutISMetrics(RolloutISConfig.from_mapping(ALGORITHM))
    metrics.update(*tensors(0))
    return metrics


@pytest.mark.parametrize("change", CHANGES)
def test_it_follows_every_change(change):
    metrics = metrics_with_a_batch()
    before = metrics.merged().clone()
    CHANGES[change](metrics, tensors(1))
    assert not torch.equal(metrics.merged(), before)
    assert torch.equal(metrics.merged(), metrics.packed)


def test_its_values_are_those_of_compute():
    metrics = metrics_with_a_batch()
    assert metrics.named(metrics.merged()) == metrics.compute()


def test_a_copy_has_its_own():
    metrics = metrics_with_a_batch()
    metrics.merged()
    copied = metrics.clone()
    copied.update(*tensors(1))
    assert torch.equal(copied.merged(), copied.packed)
    assert torch.equal(metrics.merged(), metrics.packed)


def test_several_callbacks_share_one_exchange_between_ranks(tmp_path, monkeypatch):
    exchanges = []
    entered = RolloutISMetrics.sync_context

    def counted(self, *args, **kwargs):
        exchanges.append(kwargs["should_sync"])
        return entered(self, *args, **kwargs)

    monkeypatch.setattr(RolloutISMetrics, "sync_context", counted)
    callbacks = [RolloutISCallback(), RolloutISCallback(prefix="is/")]
    fit(Policy(), [rollout_batch(seed) for seed in range(3)], tmp_path, callbacks=callbacks)
    assert exchanges == [True] * 3


def test_a_metric_that_is_not_to_be_synchronised_is_not():
    ranks = {"distributed_available_fn": lambda: True, "dist_sync_fn": lambda *_: pytest.fail("asked the other ranks")}
    metrics = RolloutISMetrics(RolloutISConfig.from_mapping(ALGORITHM), sync_on_compute=False, **ranks)
    assert torch.equal(metrics.merged(), metrics.packed)
