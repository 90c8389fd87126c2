"""What a checkpoint holds: of the package the callback's state alone, and nothing but tensors and plain Python."""

import dataclasses

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import CONFIG, assert_points_follow_the_loss, loss_steps
from tests.trainer.policy import ALGORITHM, Policy, _Policy, rollout_batch
from tests.trainer.runs import fit

# A run without the plugin has fewer callbacks, and one without checkpoints too.
pytestmark = pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks:UserWarning")
BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(4)]


class PolicyWithHyperparameters(Policy):
    def __init__(self, algorithm=ALGORITHM, automatic=True):
        super().__init__(algorithm, automatic)
        self.save_hyperparameters()


class WithoutThePlugin(_Policy, lightning.LightningModule):
    """The same policy before anybody heard of rollout importance sampling."""

    def configure_rollout_is(self, algorithm):
        pass

    def rollout_is_loss(self, token_loss, *_):
        return token_loss


def saved(module, folder, **settings):
    """A run with checkpoints, and its last one."""
    keep = ModelCheckpoint(folder / "kept", filename="last")
    settings = {"callbacks": [RolloutISCallback()], **settings}
    settings["callbacks"] = [*settings["callbacks"], keep]
    fit(module, BATCHES, folder, enable_checkpointing=True, **settings)
    return folder / "kept" / "last.ckpt"


@pytest.mark.parametrize("algorithm", [ALGORITHM, dataclasses.asdict(CONFIG)], ids=["as_given", "every_setting"])
def test_the_whole_checkpoint_loads_as_plain_data(tmp_path, algorithm):
    callbacks = [RolloutISCallback(), RolloutISCallback(prefix="is/")]
    path = saved(PolicyWithHyperparameters(algorithm), tmp_path, callbacks=callbacks)
    checkpoint = torch.load(path, weights_only=True)
    assert checkpoint["hyper_parameters"]["algorithm"] == algorithm
    assert list(checkpoint["state_dict"]) == ["logits"]
    again = PolicyWithHyperparameters.load_from_checkpoint(path, weights_only=True)
    assert again.rollout_is_config == CONFIG


def test_only_the_module_and_callbacks_leave_something(tmp_path):
    checkpoint = torch.load(saved(Policy(), tmp_path), weights_only=True)
    (state,) = (state for name, state in checkpoint["callbacks"].items() if not name.startswith("ModelCheckpoint"))
    assert list(state) == ["standing"]
    assert set(state["standing"]["mismatch_kl"]) == {"number", "grade", "since", "against", "first_against"}
    assert "rollout" not in repr(sorted(checkpoint, key=str)) + repr(checkpoint["loops"])


@pytest.mark.parametrize("automatic", [True, False])
def test_trained_with_the_plugin_goes_on_without_it_and_back(tmp_path, automatic):
    first = saved(Policy(automatic=automatic), tmp_path / "with")
    bare = fit(WithoutThePlugin(automatic=automatic), BATCHES, tmp_path, callbacks=[], max_epochs=2, ckpt_path=first)
    assert bare.global_step == 8
    bare.save_checkpoint(tmp_path / "second.ckpt", weights_only=False)
    second = tmp_path / "second.ckpt"
    assert torch.load(first)["state_dict"].keys() == torch.load(second)["state_dict"].keys()
    fit(Policy(automatic=automatic), BATCHES, tmp_path / "back", max_epochs=3, ckpt_path=second)
    assert_points_follow_the_loss(tmp_path / "back", [[batch] for batch in BATCHES])
    assert loss_steps(tmp_path / "back") == [8, 9, 10, 11]


def test_the_weights_of_one_load_strictly_into_the_other(tmp_path):
    with_plugin, without = Policy(), WithoutThePlugin()
    without.load_state_dict(with_plugin.state_dict())
    with_plugin.load_state_dict(without.state_dict())
    loaded = WithoutThePlugin.load_from_checkpoint(saved(Policy(), tmp_path), weights_only=True, strict=True)
    assert loaded.logits.abs().sum() > 0


def test_metrics_that_the_user_wants_to_keep_are_kept(tmp_path):
    class Keeps(Policy):
        def configure_rollout_is(self, algorithm):
            super().configure_rollout_is(algorithm)
            self.rollout_is_metrics.persistent(True)

    module = Keeps()
    path = saved(module, tmp_path)
    assert set(torch.load(path, weights_only=True)["state_dict"]) == {"logits", "rollout_is_metrics.packed"}
    again = Keeps.load_from_checkpoint(path, weights_only=True)
    assert torch.equal(again.rollout_is_metrics.packed, module.rollout_is_metrics.packed)
