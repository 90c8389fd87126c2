"""What is read back from event files, sound and broken ones."""

import math

import numpy as np
import pytest
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from torch.utils.tensorboard import SummaryWriter

from lightning_rollout_is.event_files import read_event_log, read_events
from tests.report.written import copy_later, damage, event_file, truncate, write_run


def test_every_point_is_read_in_order(tmp_path):
    logger = TensorBoardLogger(tmp_path, name="", version="")
    # More than the 10000 points that TensorBoard keeps of a curve unless told otherwise would be thinned out.
    for step in range(10050):
        logger.log_metrics({"reward": step}, step=step)
    logger.finalize("success")
    assert read_events(tmp_path)["reward"] == list(range(10050))


def test_it_reads_what_tensorboard_reads(tmp_path):
    write_run(tmp_path, length=7, rollout_is_max=lambda step: 1.0 + step / 3)
    theirs = EventAccumulator(str(tmp_path)).Reload()
    ours = read_event_log(tmp_path)
    assert not ours.notes
    assert set(ours.curves) == set(theirs.Tags()["scalars"])
    for tag, curve in ours.curves.items():
        assert list(zip(curve.steps, curve.values, strict=True)) == [(e.step, e.value) for e in theirs.Scalars(tag)]


@pytest.mark.parametrize("double", [False, True])
def test_scalars_written_as_tensors_are_scalars(tmp_path, double):
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("a", 0.1, 3, new_style=True, double_precision=double)
        writer.add_histogram("h", np.arange(10.0), 3)
        writer.add_text("t", "words", 3)
    log = read_event_log(tmp_path)
    assert list(log.curves) == ["a"]
    assert list(log.curves["a"].steps) == [3]
    assert log.curves["a"].values[0] == pytest.approx(0.1, rel=1e-9 if double else 1e-6)


def test_a_folder_without_events_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no TensorBoard event file"):
        read_events(tmp_path)


def test_a_resumed_run_is_one_curve_and_the_later_file_counts(tmp_path):
    write_run(tmp_path / "run", length=10, rollout_is_mean=1.0)
    write_run(tmp_path / "again", start=6, length=10, rollout_is_mean=2.0)
    copy_later(event_file(tmp_path / "again"), tmp_path / "run")
    curve = read_event_log(tmp_path / "run").curves["mismatch/rollout_is_mean"]
    assert list(curve.steps) == list(range(16))
    assert list(curve.values) == [1.0] * 6 + [2.0] * 10


def test_a_writer_that_starts_again_drops_what_lies_beyond(tmp_path):
    write_run(tmp_path, length=10)
    writer = EventFileWriter(str(tmp_path), filename_suffix=".later")
    writer.add_event(Event(step=4, session_log=SessionLog(status=SessionLog.START)))
    writer.close()
    assert list(read_event_log(tmp_path).curves["mismatch/rollout_is_mean"].steps) == [0, 1, 2, 3]


def test_a_file_that_breaks_off_is_read_up_to_there(tmp_path):
    write_run(tmp_path, length=100)
    size = event_file(tmp_path).stat().st_size
    truncate(event_file(tmp_path), share=0.5)
    log = read_event_log(tmp_path)
    (note,) = log.notes
    last = max(curve.steps[-1] for curve in log.curves.values())
    assert 45 < last < 55
    assert f"of {size // 2}" in note
    assert f"the points up to step {last} are kept" in note


def test_a_damaged_record_ends_its_file_and_no_other(tmp_path):
    write_run(tmp_path / "run", length=50)
    write_run(tmp_path / "again", start=50, length=50)
    damage(event_file(tmp_path / "run"))
    copy_later(event_file(tmp_path / "again"), tmp_path / "run")
    log = read_event_log(tmp_path / "run")
    steps = log.curves["mismatch/rollout_is_mean"].steps
    assert len(log.notes) == 1
    assert list(steps) == list(range(steps[-51] + 1)) + list(range(50, 100))


@pytest.mark.parametrize("content", [b"no event file at all, but some text", b"\x00" * 40, b"x"])
def test_what_is_no_event_file_says_so(tmp_path, content):
    (tmp_path / "events.out.tfevents.1").write_bytes(content)
    log = read_event_log(tmp_path)
    assert not log.curves
    assert f"cannot be read beyond byte 0 of {len(content)}" in log.notes[0]
    assert "nothing before it" in log.notes[0]


def test_an_empty_file_says_so(tmp_path):
    (tmp_path / "events.out.tfevents.1").touch()
    assert "is empty" in read_event_log(tmp_path).notes[0]


def test_values_that_are_no_numbers_are_kept_as_such(tmp_path):
    write_run(tmp_path, length=2, rollout_is_max=math.inf, rollout_is_mean=math.nan)
    curves = read_event_log(tmp_path).curves
    assert list(curves["mismatch/rollout_is_max"].values) == [math.inf] * 2
    assert all(map(math.isnan, curves["mismatch/rollout_is_mean"].values))


def test_hyperparameters_are_read(tmp_path):
    logger = TensorBoardLogger(tmp_path, name="", version="")
    logger.log_hyperparams({"algorithm": {"rollout_is_level": "token", "rollout_is": True}, "lr": 0.5})
    logger.finalize("success")
    assert read_event_log(tmp_path).hyperparameters == {
        "algorithm/rollout_is_level": "token",
        "algorithm/rollout_is": True,
        "lr": 0.5,
    }
