"""Callbacks that copy the module, and copies that the user makes."""

import copy

import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, StochasticWeightAveraging

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import assert_curves_are_exact, assert_points_follow_the_loss
from tests.trainer.policy import Policy, PolicyWithValidation, rollout_batch
from tests.trainer.runs import fit

BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(4)]
ONE_BY_ONE = [[batch] for batch in BATCHES]


def test_an_average_of_the_weights(tmp_path):
    callbacks = [RolloutISCallback(), EMAWeightAveraging(decay=0.5)]
    validation = {"val_batches": [rollout_batch(99, mismatch=5.0)]}
    trainer = fit(PolicyWithValidation(), BATCHES, tmp_path, max_epochs=2, callbacks=callbacks, **validation)
    assert_curves_are_exact(tmp_path, range(8), ONE_BY_ONE * 2)
    trainer.save_checkpoint(tmp_path / "averaged.ckpt", weights_only=False)
    checkpoint = torch.load(tmp_path / "averaged.ckpt", weights_only=True)
    assert set(checkpoint["state_dict"]) == set(checkpoint["current_model_state"]) == {"logits"}


class PolicyWithBatchNorm(Policy):
    """For whose statistics Lightning passes all data once more at the end."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)

    def training_step(self, batch, batch_idx):
        self.norm(torch.ones(2, 3))
        return super().training_step(batch, batch_idx)


def test_stochastic_weight_averaging(tmp_path):
    callbacks = [RolloutISCallback(), StochasticWeightAveraging(1e-2, swa_epoch_start=1, annealing_epochs=1)]
    fit(Policy(), BATCHES, tmp_path / "plain", max_epochs=3, callbacks=callbacks)
    assert_points_follow_the_loss(tmp_path / "plain", ONE_BY_ONE * 3)


def test_stochastic_weight_averaging_with_its_extra_pass(tmp_path):
    callbacks = [RolloutISCallback(), StochasticWeightAveraging(1e-2, swa_epoch_start=1, annealing_epochs=1)]
    fit(PolicyWithBatchNorm(), BATCHES, tmp_path, max_epochs=2, callbacks=callbacks)
    assert_points_follow_the_loss(tmp_path, [*ONE_BY_ONE * 2, BATCHES])


def test_a_copy_counts_for_itself():
    module = Policy()
    module.weighted_loss(BATCHES[0])
    reference = copy.deepcopy(module)
    before = reference.rollout_is_metrics.packed.clone()
    module.weighted_loss(BATCHES[1])
    assert torch.equal(reference.rollout_is_metrics.packed, before)
    reference.weighted_loss(BATCHES[1])
    assert torch.equal(reference.rollout_is_metrics.packed, module.rollout_is_metrics.packed)
