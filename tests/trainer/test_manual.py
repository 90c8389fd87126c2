"""Manual optimisation: windows are what the user's own optimizer steps make them."""

import pytest
import torch

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import assert_curves_are_exact, assert_points_follow_the_loss
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import curves, fit

BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(4)]


def rows_of(batch, rows):
    return {name: tensor[rows] for name, tensor in batch.items()}


def test_inner_epochs_within_one_training_step_are_one_point(tmp_path):
    minibatches = (slice(0, 1), slice(1, None))

    class InnerEpochs(Policy):
        def training_step(self, batch, batch_idx):
            for _ in range(3):
                for rows in minibatches:
                    self.step_by_hand(self.loss_of(rows_of(batch, rows)))

    fit(InnerEpochs(automatic=False), BATCHES, tmp_path, max_epochs=2)
    assert_points_follow_the_loss(tmp_path, [[batch] * 3 for batch in BATCHES] * 2)


def test_inner_epochs_as_batches_of_their_own_are_a_point_each(tmp_path):
    inner = [batch for batch in BATCHES for _ in range(3)]
    for automatic in (True, False):
        folder = tmp_path / str(automatic)
        fit(Policy(automatic=automatic), inner, folder)
        assert_points_follow_the_loss(folder, [[batch] for batch in inner])


def test_a_window_that_the_user_keeps_open_goes_on_in_the_next_epoch(tmp_path):
    class StepsOnTheSecond(Policy):
        def training_step(self, batch, batch_idx):
            loss = self.loss_of(batch)
            if batch_idx == 1:
                self.step_by_hand(loss)
            else:
                self.manual_backward(loss)

    fit(StepsOnTheSecond(automatic=False), BATCHES[:3], tmp_path, max_epochs=2)
    assert_curves_are_exact(tmp_path, [1, 4], [BATCHES[:2], [BATCHES[2], *BATCHES[:2]]])


class ActorAndCritic(Policy):
    """Two optimizers that step in turn: the critic's batches have no rollout."""

    def __init__(self):
        super().__init__(automatic=False)
        self.value = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch, batch_idx):
        actor, critic = self.optimizers()
        loss, optimizer = (self.value.square().sum(), critic) if batch_idx % 2 else (self.loss_of(batch), actor)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD([parameter], lr=0.1) for parameter in (self.logits, self.value)]


def test_a_step_of_the_critic_alone_is_no_point(tmp_path):
    fit(ActorAndCritic(), BATCHES, tmp_path, max_epochs=2)
    assert_curves_are_exact(tmp_path, [0, 2, 4, 6], [BATCHES[:1], BATCHES[2:3]] * 2)


def test_the_critic_on_the_same_batch_adds_no_point(tmp_path):
    class Both(ActorAndCritic):
        def training_step(self, batch, batch_idx):
            super().training_step(batch, 0)
            super().training_step(batch, 1)

    fit(Both(), BATCHES, tmp_path, max_epochs=2)
    assert_points_follow_the_loss(tmp_path, [[batch] for batch in BATCHES] * 2)


def test_an_interval_that_the_actors_steps_never_meet_still_writes(tmp_path):
    fit(ActorAndCritic(), BATCHES, tmp_path, max_epochs=2, callbacks=[RolloutISCallback(every_n_steps=2)])
    steps = [step for step, _ in curves(tmp_path)["mismatch/mismatch_kl"]]
    assert steps
    assert_curves_are_exact(tmp_path, steps, [[BATCHES[step % 4]] for step in steps])


class StepsOfItsOwn(Policy):
    def training_step(self, batch, batch_idx):
        self.manual_backward(self.loss_of(batch))
        optimizer = self.optimizers(use_pl_optimizer=False)
        optimizer.step()
        optimizer.zero_grad()


class StepsAfterwards(Policy):
    def training_step(self, batch, batch_idx):
        self.manual_backward(self.loss_of(batch))

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.optimizers().step()
        self.optimizers().zero_grad()


@pytest.mark.parametrize("policy", [StepsOfItsOwn, StepsAfterwards])
def test_steps_that_lightning_does_not_count_are_said(tmp_path, policy):
    with pytest.warns(UserWarning, match=r"nothing was logged.*inside training_step"):
        fit(policy(automatic=False), BATCHES, tmp_path)
    assert "mismatch/mismatch_kl" not in curves(tmp_path)
