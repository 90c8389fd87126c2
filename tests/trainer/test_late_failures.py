"""Runs that fail while values are on their way to the host: no finished step loses its point, and faults come out."""

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.trainer.diary import KEY, Diary
from tests.trainer.exact import assert_points_follow_the_loss
from tests.trainer.late import LateCallback
from tests.trainer.policy import ALGORITHM, Policy, rollout_batch
from tests.trainer.runs import curves, fit

BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(6)]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("hook", ["training_step", "on_train_batch_start", "on_before_optimizer_step"])
def test_a_failure_in_a_later_step_loses_no_point(tmp_path, error, hook):
    class Fails(Policy):
        def fail(self, *arguments):
            if self.global_step == 3:
                raise error("out of memory, say")
            return getattr(Policy, hook)(self, *arguments)

    setattr(Fails, hook, Fails.fail)
    with pytest.raises(RuntimeError if error is RuntimeError else SystemExit):
        fit(Fails(), BATCHES, tmp_path, callbacks=[LateCallback()])
    assert_points_follow_the_loss(tmp_path, [[batch] for batch in BATCHES[:3]])


def test_a_failure_to_write_never_hides_what_ended_training(tmp_path, caplog):
    class Fails(Policy):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                raise KeyError("what the user must see")
            return super().training_step(batch, batch_idx)

    malformed = {**BATCHES[1], "response_mask": BATCHES[1]["response_mask"] * 0.5}
    with pytest.raises(KeyError, match="what the user must see"):
        fit(Fails(), [BATCHES[0], malformed, BATCHES[2]], tmp_path, callbacks=[LateCallback()])
    assert "were not written: response_mask holds values other than 0 and 1" in caplog.text


def test_values_that_never_arrive_stand_in_the_way_of_nothing_else(tmp_path, caplog):
    class Breaks(LateCallback.transfer):
        def wait(self):
            if len(trained) > 1:
                raise RuntimeError("the device is gone")
            return super().wait()

    class Fails(Policy):
        def training_step(self, batch, batch_idx):
            trained.append(batch_idx)
            if batch_idx == 2:
                raise KeyError("what the user must see")
            return super().training_step(batch, batch_idx)

    trained, callback = [], LateCallback()
    callback.transfer = Breaks
    keep = ModelCheckpoint(tmp_path / "kept", save_on_exception=True)
    with pytest.raises(KeyError, match="what the user must see"):
        fit(Fails(), BATCHES, tmp_path / "first", callbacks=[callback, keep], enable_checkpointing=True)
    assert "were not written: the device is gone" in caplog.text
    assert list((tmp_path / "kept").iterdir())
    trained.clear()
    fit(Policy(), BATCHES[:1], tmp_path / "second", callbacks=[callback])
    assert_points_follow_the_loss(tmp_path / "second", [BATCHES[:1]])


def test_an_interrupt_while_values_are_awaited_loses_no_point(tmp_path):
    class Interrupted(LateCallback.transfer):
        waits = 0

        def wait(self):
            Interrupted.waits += 1
            if Interrupted.waits == 3:
                raise KeyboardInterrupt
            return super().wait()

    callback = LateCallback()
    callback.transfer = Interrupted
    with pytest.raises(SystemExit):
        fit(Policy(), BATCHES, tmp_path, callbacks=[callback])
    steps = [step for step, _ in curves(tmp_path)[KEY]]
    assert steps == [0, 1, 2]


@pytest.mark.parametrize("checkpoints", [False, True])
def test_faults_come_out_with_their_point_and_before_they_are_saved(tmp_path, checkpoints):
    malformed = {**BATCHES[2], "response_mask": BATCHES[2]["response_mask"] * 0.5}
    batches = [*BATCHES[:2], malformed, *BATCHES[3:]]
    keep = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    diary = Diary()
    callbacks = [LateCallback(), diary, *([keep] if checkpoints else [])]
    with pytest.raises(ValueError, match=r"response_mask holds values other than 0 and 1; .* last checkpoint"):
        fit(Policy(), batches, tmp_path, callbacks=callbacks, enable_checkpointing=checkpoints)
    batches_done = [event for event in diary.events if "batch" in event]
    assert batches_done == ["batch 0", "batch 1", "batch 2"]
    assert [step for step, _ in curves(tmp_path)[KEY]] == [0, 1]
    if checkpoints:
        assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["step=1.ckpt", "step=2.ckpt"]


def test_a_monitored_run_goes_on_without_the_point_of_a_malformed_batch(tmp_path):
    malformed = {**BATCHES[1], "response_mask": BATCHES[1]["response_mask"] * 0.5}
    monitor = Policy({**ALGORITHM, "rollout_is": False})
    with pytest.warns(UserWarning, match="response_mask holds values other than 0 and 1"):
        fit(monitor, [BATCHES[0], malformed, BATCHES[2]], tmp_path, callbacks=[LateCallback()])
    assert [step for step, _ in curves(tmp_path)[KEY]] == [0, 2]
