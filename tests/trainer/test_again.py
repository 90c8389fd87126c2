"""The same objects used twice, other stages of the Trainer, and modules inside modules."""

import lightning
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import assert_curves_are_exact, assert_points_follow_the_loss
from tests.trainer.policy import Policy, PolicyWithValidation, rollout_batch
from tests.trainer.runs import QUIET, Batches, fit

BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(4)]
ONE_BY_ONE = [[batch] for batch in BATCHES]
POISON = rollout_batch(99, mismatch=5.0)


def test_one_callback_serves_two_trainers_and_two_modules(tmp_path):
    callback = RolloutISCallback()
    for name, accumulate in (("first", 1), ("second", 2)):
        fit(Policy(), BATCHES, tmp_path / name, callbacks=[callback], accumulate_grad_batches=accumulate)
    assert_points_follow_the_loss(tmp_path / "first", ONE_BY_ONE)
    assert_points_follow_the_loss(tmp_path / "second", [BATCHES[:2], BATCHES[2:]])


def test_a_second_fit_of_the_same_trainer_goes_on_with_the_curve(tmp_path):
    module = Policy()
    trainer = fit(module, BATCHES, tmp_path)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, Batches(BATCHES))
    assert_points_follow_the_loss(tmp_path, ONE_BY_ONE * 2)


class PolicyOfAllStages(PolicyWithValidation):
    def validation_step(self, batch, batch_idx):
        with torch.no_grad():
            return self.weighted_loss(batch)  # `predict` does not allow to log

    test_step = predict_step = validation_step


def test_other_stages_record_nothing_before_and_after_training(tmp_path):
    module = PolicyOfAllStages()
    trainer = lightning.Trainer(**QUIET, logger=False)
    for stage in (trainer.validate, trainer.test, trainer.predict):
        stage(module, Batches([POISON]))
    assert module.rollout_is_metrics.update_count == 0
    fitted = fit(module, BATCHES, tmp_path, val_batches=[POISON])
    assert_curves_are_exact(tmp_path, range(4), ONE_BY_ONE)
    last_step = module.rollout_is_metrics.compute()
    for stage in (fitted.validate, fitted.test, fitted.predict):
        stage(module, Batches([POISON]))
    module.rollout_is_metrics._computed = None
    torch.testing.assert_close(module.rollout_is_metrics.compute(), last_step, rtol=0.0, atol=0.0, equal_nan=True)


def test_a_loop_of_the_users_own_after_fit_is_recorded(tmp_path):
    module = Policy()
    fit(module, BATCHES, tmp_path)
    module.rollout_is_metrics.reset()
    module.weighted_loss(POISON)
    assert module.rollout_is_metrics.update_count == 1


def test_two_callbacks_keep_apart_where_checkpoints_are_on(tmp_path):
    callbacks = [
        RolloutISCallback(),
        RolloutISCallback(prefix="is/"),
        RolloutISCallback(every_n_steps=2, prefix="two/"),
    ]
    assert len({callback.state_key for callback in callbacks}) == 3
    fit(Policy(), BATCHES, tmp_path, callbacks=callbacks, enable_checkpointing=True, default_root_dir=tmp_path)
    assert_curves_are_exact(tmp_path, range(4), ONE_BY_ONE)
    assert_curves_are_exact(tmp_path, range(4), ONE_BY_ONE, prefix="is/")
    assert_curves_are_exact(tmp_path, [1, 3], ONE_BY_ONE[1::2], prefix="two/")


class Outer(lightning.LightningModule):
    """Holds the policy as a part."""

    def __init__(self):
        super().__init__()
        self.policy = Policy()

    def training_step(self, batch, batch_idx):
        return self.policy.weighted_loss(batch)

    def configure_optimizers(self):
        return self.policy.configure_optimizers()


class OuterThatLends(Outer):
    @property
    def rollout_is_metrics(self):
        return self.policy.rollout_is_metrics

    def validation_step(self, batch, batch_idx):
        self.policy.weighted_loss(batch)


def test_a_policy_inside_another_module_is_not_found_by_itself(tmp_path):
    with pytest.raises(MisconfigurationException, match="no rollout importance sampling in Outer"):
        fit(Outer(), BATCHES, tmp_path)


def test_an_outer_module_can_lend_the_metrics_of_its_policy(tmp_path):
    settings = {"val_batches": [POISON], "val_check_interval": 1, "accumulate_grad_batches": 2}
    fit(OuterThatLends(), BATCHES, tmp_path, **settings)
    assert_curves_are_exact(tmp_path, [0, 1], [BATCHES[:2], BATCHES[2:]])


def test_fast_dev_run_writes_no_file(tmp_path):
    fit(Policy(), BATCHES, tmp_path / "logs", fast_dev_run=True, default_root_dir=tmp_path)
    assert not list(tmp_path.rglob("*"))


def test_a_step_that_returns_none_counts_as_lightning_counts_it(tmp_path):
    class Declines(Policy):
        def training_step(self, batch, batch_idx):
            loss = self.loss_of(batch)
            return None if batch_idx == 1 else loss

    with pytest.warns(UserWarning, match="returned `None`"):
        fit(Declines(), BATCHES, tmp_path)
    assert_points_follow_the_loss(tmp_path, ONE_BY_ONE)


def test_statistics_of_inference_mode_can_be_added_to_and_reset():
    module = Policy()
    with torch.inference_mode():
        module.weighted_loss(POISON)
    module.weighted_loss(BATCHES[0])
    module.rollout_is_metrics.reset()
    for batch in BATCHES[:2]:
        module.weighted_loss(batch)
    assert module.rollout_is_metrics.compute()["mismatch/mismatch_kl"].isfinite()
