"""What TensorBoard's pages of text and of hyperparameters say of a run."""

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from lightning_rollout_is import RolloutISCallback, RolloutISHealth
from lightning_rollout_is.callbacks import UnhealthyError
from tests.health.runs import OK, RULES, SICK, batches
from tests.trainer.boards import hyperparameters, texts
from tests.trainer.late import LateCallback
from tests.trainer.policy import ALGORITHM, Policy
from tests.trainer.runs import ResumableBatches, fit

SOURCES = [RolloutISCallback, LateCallback]


class PolicyThatSavesItsHyperparameters(Policy):
    def __init__(self, algorithm=ALGORITHM, lr=0.1):
        super().__init__(algorithm)
        self.save_hyperparameters()


class PolicyWithAReward(Policy):
    def loss_of(self, batch):
        self.log("train/reward", batch["old_log_prob"].sum())
        return super().loss_of(batch)


def tensorboard(folder, **settings):
    return TensorBoardLogger(folder, name="", version="", **settings)


@pytest.mark.parametrize("source", SOURCES)
def test_the_verdict_is_written_when_it_changes_and_at_the_end(tmp_path, source):
    shifts = [OK, OK, OK, SICK, SICK, SICK, SICK, *[OK] * 3]
    callbacks = [source(), RolloutISHealth(RULES)]
    with pytest.warns(UserWarning, match=r"\[kl\]"):
        fit(Policy(), batches(*shifts), tmp_path, callbacks=callbacks)
    said = texts(tmp_path)
    assert [step for step, _ in said] == [0, 3, 5, 7, 9]
    first, begun, _, over, last = (words for _, words in said)
    assert first.startswith("### Healthy at step 0")
    assert begun.startswith("### Unhealthy at step 3")
    assert "- **kl**: " in begun
    assert "since step 3" in begun
    assert "What to do" in begun
    assert "- **kl**: " not in over  # the rule no longer holds; the value is still said to be out of range
    assert last.startswith(("### Unhealthy at step 9", "### To watch at step 9"))


def test_a_value_out_of_range_is_told_of_without_the_callback_of_health(tmp_path):
    fit(Policy(), batches(*[0.05] * 4), tmp_path)
    (first, words), (last, at_the_end) = texts(tmp_path)
    assert (first, last) == (0, 3)
    assert words.startswith("### To watch at step 0")
    assert "- **KL(rollout || training), nats a token**: 0.05 at this step" in at_the_end
    assert "since step 0" in at_the_end
    assert "| KL(rollout &#124;&#124; training), nats a token | 0.05 | -0.01 to 0.01 | **to watch**; out of" in words


@pytest.mark.parametrize("source", SOURCES)
def test_the_last_word_of_a_run_that_its_health_has_ended(tmp_path, source):
    callbacks = [source(), RolloutISHealth(RULES, on_unhealthy="raise")]
    with pytest.raises(UnhealthyError):
        fit(Policy(), batches(OK, OK, SICK, OK), tmp_path, callbacks=callbacks)
    said = texts(tmp_path)
    assert [step for step, _ in said] == [0, 2]
    assert said[-1][1].startswith("### Unhealthy at step 2")


def test_a_run_that_is_interrupted_has_a_verdict_at_its_last_point(tmp_path):
    class Interrupts(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if batch_idx == 3:
                raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fit(Policy(), batches(*[OK] * 5), tmp_path, callbacks=[RolloutISCallback(), Interrupts()])
    assert [step for step, _ in texts(tmp_path)] == [0, 2]


def test_an_observer_that_judges_nothing_is_left_alone(tmp_path):
    class Listens(Callback):
        heard = 0

        def on_rollout_is_point(self, trainer, point):
            self.heard += 1

    listens = Listens()
    fit(Policy(), batches(OK, OK), tmp_path, callbacks=[RolloutISCallback(), listens])
    assert listens.heard == 2
    assert [step for step, _ in texts(tmp_path)] == [0, 1]


def test_a_run_without_a_point_leaves_nothing(tmp_path):
    class Fails(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fit(Policy(), batches(OK), tmp_path, callbacks=[RolloutISCallback(), Fails()])
    fit(Policy({"rollout_is_threshold": None}), batches(OK), tmp_path)
    assert texts(tmp_path) == texts(tmp_path, "mismatch/settings") == []


def test_settings_begin_with_the_algorithm_block_and_hide_secrets(tmp_path):
    logger = tensorboard(tmp_path, default_hp_metric=False)
    given = {"lr": 0.5, "wandb": {"api_key": "abc"}, "algorithm": {"rollout_is_threshold": "2", "gamma": 1}, "x": None}
    logger.log_hyperparams(given)
    fit(Policy(), batches(OK), tmp_path, logger=logger)
    ((_, words),) = texts(tmp_path, "mismatch/settings")
    rows = [row for row in words.splitlines() if row.startswith("| ")]
    assert rows[1:7] == [
        "| algorithm.rollout_is_threshold | 2.0 |",
        "| algorithm.rollout_is | true |",
        "| algorithm.rollout_is_threshold_lower | null |",
        "| algorithm.rollout_is_level | token |",
        "| algorithm.rollout_is_mode | mask |",
        "| algorithm.rollout_is_veto_threshold | 0.0001 |",
    ]
    assert rows[7:] == ["| lr | 0.5 |", "| wandb.api_key | (hidden) |", "| algorithm.gamma | 1 |", "| x | null |"]
    assert "abc" not in str(hyperparameters(tmp_path))


def test_hyperparameters_are_the_algorithm_block_with_outcomes_beside_it(tmp_path):
    logger = tensorboard(tmp_path, default_hp_metric=False)
    logger.log_hyperparams({"seed": 3, "actor_rollout_ref": {"rollout": {"name": "int4", "n": 8}}})
    fit(PolicyWithAReward(), batches(OK, OK), tmp_path, logger=logger)
    settings, outcomes = hyperparameters(tmp_path)
    assert settings == {
        "algorithm.rollout_is_threshold": 2.0,
        "algorithm.rollout_is": "true",
        "algorithm.rollout_is_threshold_lower": "null",
        "algorithm.rollout_is_level": "token",
        "algorithm.rollout_is_mode": "mask",
        "algorithm.rollout_is_veto_threshold": 1e-4,
        "seed": 3,
        "actor_rollout_ref.rollout.name": "int4",
    }
    names = ["mismatch_k3_kl", "mismatch_kl", "rollout_is_eff_sample_size"]
    assert outcomes == ["train/reward", *(f"mismatch/{name}" for name in names)]


def test_hyperparameters_that_the_module_saves_are_left_alone(tmp_path):
    fit(PolicyThatSavesItsHyperparameters(), batches(OK), tmp_path)
    settings, _ = hyperparameters(tmp_path)
    assert settings["lr"] == 0.1
    assert settings["algorithm/rollout_is_threshold"] == 2.0
    assert "algorithm.rollout_is_threshold" not in settings


def test_no_hyperparameters_where_lightning_is_told_to_log_none(tmp_path):
    fit(Policy(), batches(OK), tmp_path, enable_autolog_hparams=False)
    assert hyperparameters(tmp_path) == ({}, [])


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks:UserWarning")
@pytest.mark.parametrize("source", SOURCES)
def test_a_run_that_goes_on_knows_since_when_a_value_is_out_of_range(tmp_path, source):
    shifts = [OK, *[0.05] * 6]
    keep = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    settings = {"callbacks": [source(), keep], "enable_checkpointing": True}
    fit(Policy(), ResumableBatches(batches(*shifts)), tmp_path / "whole", **settings)
    said = texts(tmp_path / "whole")[-1]
    assert "since step 1" in said[1]
    for done in range(1, len(shifts)):
        path, folder = tmp_path / "kept" / f"step={done}.ckpt", tmp_path / str(done)
        fit(Policy(), ResumableBatches(batches(*shifts)), folder, callbacks=[source()], ckpt_path=path)
        assert texts(folder)[-1] == said


def test_training_from_the_start_forgets_since_when(tmp_path):
    callback = RolloutISCallback()
    fit(Policy(), batches(*[0.05] * 4), tmp_path / "first", callbacks=[callback])
    fit(Policy(), batches(OK, OK, *[0.05] * 4), tmp_path / "second", callbacks=[callback])
    assert "since step 2" in texts(tmp_path / "second")[-1][1]
