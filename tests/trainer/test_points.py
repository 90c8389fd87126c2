"""One point per optimizer step: the right step, the right window, the right value."""

import pytest

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import assert_curves_are_exact
from tests.trainer.policy import Policy, PolicyWithTwoOptimizers, PolicyWithValidation, rollout_batch
from tests.trainer.runs import curves, fit

BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(6)]


def windows(accumulate, epochs=2):
    """The micro-batches of each optimizer step: Lightning closes a window at the end of an epoch too."""
    one = [BATCHES[i : i + accumulate] for i in range(0, len(BATCHES), accumulate)]
    return one * epochs


@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_automatic_optimisation(tmp_path, accumulate):
    fit(Policy(), BATCHES, tmp_path, max_epochs=2, accumulate_grad_batches=accumulate)
    loss_steps = [step for step, _ in curves(tmp_path)["loss"]]
    expected_windows = windows(accumulate)
    assert len(loss_steps) == len(expected_windows)
    assert_curves_are_exact(tmp_path, loss_steps, expected_windows)


@pytest.mark.parametrize("policy", [Policy, PolicyWithTwoOptimizers])
def test_manual_optimisation(tmp_path, policy):
    fit(policy(automatic=False), BATCHES, tmp_path, max_epochs=2)
    loss_steps = [step for step, _ in curves(tmp_path)["loss"]]
    assert loss_steps == list(range(12))
    assert_curves_are_exact(tmp_path, loss_steps, windows(1))


def test_manual_accumulation_closes_the_window_when_the_optimizer_steps(tmp_path):
    class EveryOther(Policy):
        def training_step(self, batch, batch_idx):
            loss = self.loss_of(batch)
            if batch_idx % 2:
                self.step_by_hand(loss)
            else:
                self.manual_backward(loss)

    fit(EveryOther(automatic=False), BATCHES, tmp_path)
    assert_curves_are_exact(tmp_path, [1, 3, 5], windows(2, epochs=1))


def test_written_at_every_step_whatever_lightnings_interval(tmp_path):
    with pytest.warns(UserWarning, match="smaller than the logging interval"):
        fit(Policy(), BATCHES, tmp_path, log_every_n_steps=50)
    written = curves(tmp_path)
    assert "loss" not in written
    assert [step for step, _ in written["mismatch/mismatch_kl"]] == list(range(6))


def test_every_n_steps_writes_the_steps_that_lightning_would_and_covers_one_step_each(tmp_path):
    callbacks = [RolloutISCallback(every_n_steps=3)]
    fit(Policy(), BATCHES, tmp_path, max_epochs=2, callbacks=callbacks, log_every_n_steps=3)
    steps = [step for step, _ in curves(tmp_path)["loss"]]
    assert steps == [2, 5, 8, 11]
    assert_curves_are_exact(tmp_path, steps, [windows(1)[step] for step in steps])


def test_validation_and_sanity_check_leave_no_trace(tmp_path):
    poison = rollout_batch(99, mismatch=5.0)
    validation = {"val_batches": [poison] * 2, "num_sanity_val_steps": 2, "val_check_interval": 2}
    fit(PolicyWithValidation(), BATCHES, tmp_path, **validation)
    assert_curves_are_exact(tmp_path, list(range(6)), windows(1, epochs=1))


@pytest.mark.parametrize("automatic", [True, False])
def test_fit_twice_starts_again_with_an_empty_window(tmp_path, automatic):
    module = Policy(automatic=automatic)
    fit(module, [rollout_batch(99, mismatch=5.0)], tmp_path / "first")
    fit(module, BATCHES, tmp_path / "second")
    assert_curves_are_exact(tmp_path / "second", list(range(6)), windows(1, epochs=1))


def test_resume_goes_on_without_a_gap_or_a_repeated_step(tmp_path):
    first = fit(Policy(), BATCHES, tmp_path / "first")
    first.save_checkpoint(tmp_path / "last.ckpt", weights_only=False)
    fit(Policy(), BATCHES, tmp_path / "second", max_epochs=3, ckpt_path=tmp_path / "last.ckpt")
    steps = [step for step, _ in curves(tmp_path / "second")["mismatch/mismatch_kl"]]
    assert steps == [step for step, _ in curves(tmp_path / "second")["loss"]]
    assert steps == list(range(6, 18))


def test_two_callbacks_write_the_same_values_under_their_prefixes(tmp_path):
    fit(Policy(), BATCHES, tmp_path, callbacks=[RolloutISCallback(), RolloutISCallback(prefix="is/")])
    written = curves(tmp_path)
    assert written["mismatch/rollout_is_mean"] == written["is/rollout_is_mean"]
    assert len(written["is/rollout_is_mean"]) == 6
