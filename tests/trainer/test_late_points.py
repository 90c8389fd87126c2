"""Values that take their time to the host: each point is written a step late, at its own x, and none is lost."""

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from lightning_rollout_is import RolloutISCallback
from tests.trainer.diary import KEY, Diary
from tests.trainer.exact import CONFIG, assert_curves_are_exact, assert_points_follow_the_loss
from tests.trainer.late import LateCallback
from tests.trainer.policy import Policy, PolicyWithTwoOptimizers, PolicyWithValidation, rollout_batch
from tests.trainer.runs import ResumableBatches, expected, fit

BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(6)]
VALIDATION = [rollout_batch(99, mismatch=5.0)]
HOOKS = ("on_validation_start", "on_train_epoch_end", "on_save_checkpoint", "on_train_end", "on_exception", "teardown")


def windows_of(size):
    return [BATCHES[i : i + size] for i in range(0, len(BATCHES), size)]


def kl(batch):
    return pytest.approx(expected([batch], CONFIG)["mismatch_kl"], rel=1e-6)


def noted(module, folder, callback=None, more=(), **settings):
    """The events of a run whose curves go to TensorBoard as well, and what could be monitored at each batch's end."""
    diary = Diary()
    loggers = [TensorBoardLogger(folder, name="", version=""), diary.logger(folder)]
    callbacks = [callback or LateCallback(), diary, *more]
    fit(module, settings.pop("batches", BATCHES[:3]), folder, callbacks=callbacks, logger=loggers, **settings)
    return diary


def test_a_point_comes_a_step_late_at_its_own_x_and_the_first_at_once(tmp_path):
    diary = noted(Policy(), tmp_path, batches=BATCHES[:4])
    written = ["point 0", "batch 0", "batch 1", "point 1", "batch 2", "point 2", "batch 3", "point 3"]
    assert diary.events == written
    assert diary.monitored == [kl(BATCHES[position]) for position in (0, 0, 1, 2)]
    assert_points_follow_the_loss(tmp_path, [[batch] for batch in BATCHES[:4]])


def test_what_arrives_at_once_is_written_at_once(tmp_path):
    diary = noted(Policy(), tmp_path, RolloutISCallback())
    assert diary.events == ["point 0", "batch 0", "point 1", "batch 1", "point 2", "batch 2"]


@pytest.mark.parametrize("accumulate", [1, 2, 4])
@pytest.mark.parametrize("max_steps", [-1, 1, 2])
def test_accumulation_and_a_limit_of_steps(tmp_path, accumulate, max_steps):
    settings = {"accumulate_grad_batches": accumulate, "max_epochs": 2, "max_steps": max_steps}
    fit(Policy(), BATCHES, tmp_path, callbacks=[LateCallback()], **settings)
    windows = windows_of(accumulate) * 2
    assert_points_follow_the_loss(tmp_path, windows if max_steps == -1 else windows[:max_steps])


@pytest.mark.parametrize("policy", [Policy, PolicyWithTwoOptimizers])
def test_manual_optimisation(tmp_path, policy):
    fit(policy(automatic=False), BATCHES, tmp_path, max_epochs=2, callbacks=[LateCallback()])
    assert_points_follow_the_loss(tmp_path, windows_of(1) * 2)


def test_an_interval_is_kept_to_and_its_point_comes_with_the_next_step(tmp_path):
    diary = noted(Policy(), tmp_path, LateCallback(every_n_steps=2), batches=BATCHES, max_epochs=1)
    points = [f"batch {i}" for i in range(6)]
    for point, before in (("point 5", None), ("point 3", "batch 4"), ("point 1", "batch 1")):
        points.insert(points.index(before) if before else len(points), point)
    assert diary.events == points
    assert_curves_are_exact(tmp_path, [1, 3, 5], [BATCHES[1:2], BATCHES[3:4], BATCHES[5:]])


def test_validation_finds_the_point_of_the_last_step(tmp_path):
    settings = {"val_batches": VALIDATION, "val_check_interval": 2, "num_sanity_val_steps": 1}
    diary = noted(PolicyWithValidation(), tmp_path, batches=BATCHES[:4], **settings)
    steps = ["point 0", "batch 0", "batch 1", "point 1", "validation", "batch 2", "batch 3", "point 3", "validation"]
    assert [event for event in diary.events if event != "point 2"] == ["validation", *steps]
    assert diary.events.index("point 2") < diary.events.index("batch 3")
    assert diary.monitored == [None, *(kl(BATCHES[i]) for i in (0, 0, 1, 1, 2, 3))]


@pytest.mark.parametrize("validate", [True, False])
def test_early_stopping_and_checkpoints_of_an_epoch_decide_by_its_last_step(tmp_path, validate):
    keep = ModelCheckpoint(tmp_path / "kept", monitor=KEY, mode="max", save_top_k=-1)
    stop = EarlyStopping(monitor=KEY, patience=0, mode="max", check_on_train_epoch_end=not validate)
    settings = {"val_batches": VALIDATION} if validate else {}
    module = PolicyWithValidation() if validate else Policy()
    noted(module, tmp_path, more=[keep, stop], enable_checkpointing=True, max_epochs=2, **settings)
    assert keep.best_model_score.item() == stop.best_score.item() == kl(BATCHES[2])


def test_a_checkpoint_of_a_step_has_its_point_before_it(tmp_path):
    keep = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=2, save_top_k=-1, save_on_train_epoch_end=False)
    diary = noted(Policy(), tmp_path, more=[keep], batches=BATCHES[:4], enable_checkpointing=True)
    saved = [diary.events[: i + 1] for i, event in enumerate(diary.events) if event == "saved"]
    assert [events[-2] for events in saved] == ["point 1", "point 3"]
    assert [event for event in diary.events if "point" in event] == [f"point {step}" for step in range(4)]


def test_a_checkpoint_chosen_at_a_step_is_chosen_by_the_values_of_that_step(tmp_path):
    keep = ModelCheckpoint(tmp_path / "kept", monitor=KEY, mode="max", every_n_train_steps=1, save_top_k=1)
    diary = noted(Policy(), tmp_path, more=[keep], batches=BATCHES, enable_checkpointing=True)
    values = [expected([batch], CONFIG)["mismatch_kl"] for batch in BATCHES]
    assert f"step={values.index(max(values)) + 1}" in keep.best_model_path
    assert diary.monitored == [kl(batch) for batch in BATCHES]


def test_a_checkpoint_chosen_by_something_else_makes_nothing_wait(tmp_path):
    keep = ModelCheckpoint(tmp_path / "kept", monitor="loss", every_n_train_steps=6, save_top_k=1)
    diary = noted(Policy(), tmp_path, more=[keep], enable_checkpointing=True)
    assert diary.events[:4] == ["point 0", "batch 0", "batch 1", "point 1"]


def test_a_schedule_of_the_learning_rate_decides_by_the_values_of_its_step(tmp_path):
    class Scheduled(Policy):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "interval": "step", "monitor": KEY}}

    assert noted(Scheduled(), tmp_path).monitored == [kl(batch) for batch in BATCHES[:3]]


def test_resuming_from_any_checkpoint_repeats_and_misses_nothing(tmp_path):
    keep = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    callbacks = [LateCallback(), keep]
    full = ResumableBatches(BATCHES[:4])
    fit(Policy(), full, tmp_path / "full", callbacks=callbacks, enable_checkpointing=True)
    for done in (1, 2, 3):
        folder = tmp_path / str(done)
        again = [LateCallback(), ModelCheckpoint(folder / "kept", every_n_train_steps=100, filename="{step}")]
        checkpoint = tmp_path / "kept" / f"step={done}.ckpt"
        batches = ResumableBatches(BATCHES[:4])
        settings = {"callbacks": again, "enable_checkpointing": True, "ckpt_path": checkpoint}
        with pytest.warns(UserWarning, match="callbacks used to create the checkpoint|dirpath"):
            fit(Policy(), batches, folder, **settings)
        assert_curves_are_exact(folder, range(done, 4), [[batch] for batch in BATCHES[done:4]])


def with_one_hook(hook):
    """The callback without the hooks that write what is under way, but for one."""
    silent = {name: getattr(Callback, name) for name in HOOKS if name != hook}
    return type("WithOneHook", (LateCallback,), silent)()


@pytest.mark.parametrize("hook", ["on_train_epoch_end", "on_train_end", "teardown", "on_save_checkpoint"])
def test_each_hook_by_itself_writes_the_last_point(tmp_path, hook):
    keep = ModelCheckpoint(tmp_path / "kept", every_n_epochs=1)
    more = [keep] if hook == "on_save_checkpoint" else []
    diary = noted(Policy(), tmp_path, with_one_hook(hook), more, enable_checkpointing=bool(more))
    assert [event for event in diary.events if "point" in event] == ["point 0", "point 1", "point 2"]


def test_a_second_fit_with_the_same_callback_writes_its_first_point_at_once_again(tmp_path):
    callback = LateCallback()
    for name in ("first", "second"):
        diary = noted(Policy(), tmp_path / name, callback)
        assert diary.events[:2] == ["point 0", "batch 0"]
        assert_points_follow_the_loss(tmp_path / name, [[batch] for batch in BATCHES[:3]])
