"""Which micro-batches belong to an optimizer step under automatic optimisation."""

import datetime

import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, Timer

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import CONFIG, assert_curves_are_exact, assert_points_follow_the_loss
from tests.trainer.policy import Policy, PolicyWithValidation, rollout_batch
from tests.trainer.runs import Batches, expected, fit

BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(6)]
POISON = rollout_batch(99, mismatch=5.0)


def test_a_window_of_unequal_token_counts_is_not_a_mean_of_means(tmp_path):
    long, short = (rollout_batch(seed, rows=rows, length=20) for seed, rows in ((1, 8), (2, 1)))
    short["response_mask"] = torch.arange(20).eq(3).long()[None]
    window = [long, short]
    fit(Policy(), window, tmp_path, accumulate_grad_batches=2)
    assert_points_follow_the_loss(tmp_path, [window])
    mean_of_means = sum(expected([batch], CONFIG)["mismatch_kl"] for batch in window) / 2
    assert abs(mean_of_means - expected(window, CONFIG)["mismatch_kl"]) > 0.01  # so that one would show


def test_a_schedule_of_window_sizes(tmp_path):
    schedule = GradientAccumulationScheduler({0: 1, 1: 3, 2: 4})
    fit(Policy(), BATCHES, tmp_path, max_epochs=3, callbacks=[schedule, RolloutISCallback()])
    sizes = (1, 3, 4)
    assert_points_follow_the_loss(tmp_path, [BATCHES[i : i + size] for size in sizes for i in range(0, 6, size)])


def test_a_limit_of_batches_closes_a_short_window(tmp_path):
    fit(Policy(), BATCHES, tmp_path, max_epochs=2, accumulate_grad_batches=2, limit_train_batches=5)
    assert_points_follow_the_loss(tmp_path, [BATCHES[:2], BATCHES[2:4], BATCHES[4:5]] * 2)


def test_a_loader_of_unknown_length_closes_a_short_window(tmp_path):
    class Unsized(Batches):
        __len__ = None

    fit(Policy(), Unsized(BATCHES[:5]), tmp_path, max_epochs=2, accumulate_grad_batches=3)
    assert_points_follow_the_loss(tmp_path, [BATCHES[:3], BATCHES[3:5]] * 2)


def test_max_steps_ends_with_a_point(tmp_path):
    fit(Policy(), BATCHES, tmp_path, max_epochs=-1, max_steps=4, accumulate_grad_batches=2)
    assert_points_follow_the_loss(tmp_path, [BATCHES[:2], BATCHES[2:4], BATCHES[4:6], BATCHES[:2]])


def test_time_that_runs_out_within_a_window_leaves_no_point_of_half_a_step(tmp_path):
    timer = Timer(datetime.timedelta(hours=1), verbose=False)

    class Slow(Policy):
        def on_train_batch_start(self, batch, batch_idx):
            if batch_idx == 4:
                timer.load_state_dict({"time_elapsed": {"train": 3600.0}})

    module = Slow()
    fit(module, BATCHES, tmp_path / "first", accumulate_grad_batches=4, callbacks=[RolloutISCallback(), timer])
    assert_points_follow_the_loss(tmp_path / "first", [BATCHES[:4]])
    fit(module, BATCHES[:2], tmp_path / "second", accumulate_grad_batches=2)
    assert_points_follow_the_loss(tmp_path / "second", [BATCHES[:2]])


@pytest.mark.parametrize("interval", [1, 3])
def test_validation_within_a_window_leaves_no_trace(tmp_path, interval):
    validation = {"val_batches": [POISON], "val_check_interval": interval}
    fit(PolicyWithValidation(), BATCHES, tmp_path, accumulate_grad_batches=4, num_sanity_val_steps=1, **validation)
    assert_curves_are_exact(tmp_path, [0, 1], [BATCHES[:4], BATCHES[4:]])


class CutShort(Policy):
    """Skips the rest of the first epoch from its fourth batch on."""

    def on_train_batch_start(self, batch, batch_idx):
        return -1 if batch_idx == 3 and self.current_epoch == 0 else None


@pytest.mark.parametrize("automatic", [True, False])
def test_an_epoch_cut_short_leaves_no_gap(tmp_path, automatic):
    fit(CutShort(automatic=automatic), BATCHES, tmp_path, max_epochs=2)
    assert_points_follow_the_loss(tmp_path, [[batch] for batch in BATCHES[:3] + BATCHES])


def test_an_epoch_cut_short_within_a_window_carries_nothing_over(tmp_path):
    # Lightning drops the gradient of the third batch, whose window no step has closed.
    fit(CutShort(), BATCHES, tmp_path, max_epochs=2, accumulate_grad_batches=2)
    assert_points_follow_the_loss(tmp_path, [BATCHES[:2], BATCHES[:2], BATCHES[2:4], BATCHES[4:]])


def test_two_losses_of_one_step_are_one_batch(tmp_path):
    class TwoHeads(Policy):
        def training_step(self, batch, batch_idx):
            return self.loss_of(batch["first"]) + self.loss_of(batch["second"])

    heads = [{"first": BATCHES[i], "second": BATCHES[i + 1]} for i in (0, 2, 4)]
    fit(TwoHeads(), heads, tmp_path)
    assert_points_follow_the_loss(tmp_path, [BATCHES[:2], BATCHES[2:4], BATCHES[4:]])
