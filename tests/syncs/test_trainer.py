"""A whole run of the Trainer in which the statistics live where they cannot be read: one copy a point, and no other."""

import pytest
import torch

from lightning_rollout_is import RolloutISCallback, RolloutISConfig, RolloutISMetrics
from lightning_rollout_is.callbacks.transfer import Transfer
from tests.syncs.watch import DEVICE, no_waits
from tests.trainer.exact import assert_curves_are_exact
from tests.trainer.policy import ALGORITHM, Policy, rollout_batch
from tests.trainer.runs import curves, fit

BATCHES = [rollout_batch(seed) for seed in range(8)]
HOOKS = [name for name in dir(RolloutISCallback) if name.startswith("on_") and name in vars(RolloutISCallback)]


class PolicyOnADevice(Policy):
    """Its parameters are on the host, for Lightning's sake; all that the plugin gets is on the device."""

    def on_train_start(self):
        metrics = self.rollout_is_metrics
        if metrics is not None:
            metrics.to(DEVICE)
            metrics._apply = lambda *_: metrics  # Lightning would take it to the host when training is over

    def weighted_loss(self, batch):
        tokens = [batch[key].to(DEVICE) for key in ("old_log_prob", "rollout_log_prob", "response_mask")]
        with no_waits():
            weighted = self.rollout_is_loss(torch.ones_like(tokens[0]), *tokens)
            self.rollout_is_weights(*tokens)
        assert weighted.is_meta
        return self.logits.log_softmax(0)[0]


def counting(every=1):
    """A callback of which each hook is watched, and the points whose values were copied."""
    copied = []

    class Counted(Transfer):
        def __init__(self, tensor):
            assert tensor.device.type == DEVICE
            copied.append(tensor)
            self._host = torch.cat([vector := vector_of(BATCHES[0]), torch.zeros(len(tensor) - len(vector))])
            self._arrival = None

    def watched(name):
        def hook(self, *arguments):
            with no_waits():
                return getattr(RolloutISCallback, name)(self, *arguments)

        return hook

    watched_callback = type("Watched", (RolloutISCallback,), {name: watched(name) for name in HOOKS})
    watched_callback.transfer = Counted
    return watched_callback(every_n_steps=every), copied


def vector_of(batch):
    metrics = RolloutISMetrics(RolloutISConfig.from_mapping(ALGORITHM), details=True)
    metrics.update(batch["old_log_prob"], batch["rollout_log_prob"], batch["response_mask"])
    return metrics.merged()


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize(("every", "points"), [(1, 8), (4, 2)])
def test_one_copy_a_point(tmp_path, every, points, automatic):
    callback, copied = counting(every)
    fit(PolicyOnADevice(automatic=automatic), BATCHES, tmp_path, callbacks=[callback])
    assert len(copied) == points
    assert_curves_are_exact(tmp_path, range(every - 1, 8, every), [BATCHES[:1]] * points)


@pytest.mark.parametrize(("every", "points"), [(1, 4), (2, 2)])
def test_one_copy_a_point_of_several_batches(tmp_path, every, points):
    callback, copied = counting(every)
    fit(PolicyOnADevice(), BATCHES, tmp_path, callbacks=[callback], accumulate_grad_batches=2)
    assert len(copied) == points
    assert_curves_are_exact(tmp_path, range(every - 1, 4, every), [BATCHES[:1]] * points)


def test_no_copy_where_nothing_is_logged(tmp_path):
    callback, copied = counting()
    fit(PolicyOnADevice({"rollout_is_threshold": None}), BATCHES, tmp_path, callbacks=[callback])
    assert not copied
    assert set(curves(tmp_path)) == {"loss", "epoch"}


def test_one_copy_at_the_end_of_a_run_without_a_point(tmp_path):
    callback, copied = counting(every=100)
    fit(PolicyOnADevice(), BATCHES, tmp_path, callbacks=[callback])
    assert len(copied) == 1  # faults are never lost


class ReadsInTheStep(PolicyOnADevice):
    def weighted_loss(self, batch):
        loss = super().weighted_loss(batch)
        with no_waits():
            self.rollout_is_metrics.compute()["mismatch/mismatch_kl"].item()
        return loss


def test_a_stray_read_in_the_step_is_found(tmp_path):
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        fit(ReadsInTheStep(), BATCHES, tmp_path, callbacks=[counting()[0]])


def test_a_stray_read_in_the_callback_is_found(tmp_path, monkeypatch):
    merged = RolloutISMetrics.merged

    def reading(self):
        merged(self).sum().item()
        return merged(self)

    callback, _ = counting()
    monkeypatch.setattr(RolloutISMetrics, "merged", reading)
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        fit(PolicyOnADevice(), BATCHES, tmp_path, callbacks=[callback])
