"""TensorBoard gets many scalars in one event, and reads back what its logger would have written one by one."""

import copy
import pickle
import struct
import time
from pathlib import Path

import pytest
from lightning.fabric.loggers import TensorBoardLogger as FabricLogger
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from lightning_rollout_is.callbacks import summary
from lightning_rollout_is.callbacks.summary import ScalarWriter

VALUES = {f"mismatch/value_{i}": float(10.0 ** (i - 17)) / 3.0 for i in range(35)} | {"zero": 0.0, "minus": -1.5}
SETTINGS = {
    "plain": {},
    "prefix": {"prefix": "run"},
    "empty prefix": {"prefix": ""},
    "no hp_metric": {"default_hp_metric": False},
    "sub_dir": {"sub_dir": "below"},
    "purge": {"purge_step": 1},
    "small queue": {"max_queue": 1},
}


def scalars(folder):
    """Tag to (step, value, wall time), from all event files at or below ``folder``."""
    found = {}
    for file in sorted(Path(folder).rglob("events*")):
        events = EventAccumulator(str(file), size_guidance={"scalars": 0}, purge_orphaned_data=False).Reload()
        for tag in events.Tags()["scalars"]:
            found.setdefault(tag, []).extend((e.step, e.value, e.wall_time) for e in events.Scalars(tag))
    return found


def events_in(folder):
    (file,) = Path(folder).rglob("events*")
    count, data = 0, file.read_bytes()
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        count, data = count + 1, data[8 + 4 + size + 4 :]
    return count


def side_by_side(make, folder, points=3):
    """Points written by us and by the logger itself."""
    ours, theirs = make(folder / "ours"), make(folder / "theirs")
    writer = ScalarWriter()
    for step in range(points):
        values = {name: value + step for name, value in VALUES.items()}
        writer.write(ours, values, step)
        theirs.log_metrics(values, step)
    for logger in (ours, theirs):
        logger.log_hyperparams({"lr": 0.1})
        logger.finalize("success")
    return scalars(folder / "ours"), scalars(folder / "theirs")


def without_time(written):
    return {tag: [(step, value) for step, value, _ in points] for tag, points in written.items()}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", [TensorBoardLogger, FabricLogger])
def test_what_is_read_back_is_what_the_logger_would_have_written(tmp_path, kind, settings):
    start = time.time()
    ours, theirs = side_by_side(lambda folder: kind(folder, **SETTINGS[settings]), tmp_path)
    assert without_time(ours) == without_time(theirs)
    assert len([tag for tag in ours if "value_" in tag]) == 35
    assert all(start <= when <= time.time() for points in ours.values() for _, _, when in points)
    assert list(ours) == list(theirs)


def test_a_point_is_one_event(tmp_path):
    logger, writer = TensorBoardLogger(tmp_path), ScalarWriter()
    for step in range(3):
        writer.write(logger, VALUES, step)
    logger.finalize("success")
    assert events_in(tmp_path) == 1 + 3  # the first is the version of the format


def test_after_it_was_finalized_the_logger_goes_on_in_a_new_file(tmp_path):
    logger, writer = TensorBoardLogger(tmp_path), ScalarWriter()
    writer.write(logger, VALUES, 0)
    logger.finalize("success")
    for step in (1, 2):
        writer.write(logger, VALUES, step)
    logger.finalize("success")
    assert [step for step, *_ in scalars(tmp_path)["mismatch/value_3"]] == [0, 1, 2]


def test_other_names_and_other_loggers_are_named_anew(tmp_path):
    first, second = TensorBoardLogger(tmp_path / "first"), TensorBoardLogger(tmp_path / "second", prefix="run")
    writer = ScalarWriter()
    for logger, values in (
        (first, {"a": 1.0, "b": 2.0}),
        (first, {"b": 3.0}),
        (second, {"b": 4.0}),
        (first, {"b": 5.0}),
    ):
        writer.write(logger, values, 0)
    for logger in (first, second):
        logger.finalize("success")
    assert without_time(scalars(tmp_path / "first")) == {"a": [(0, 1.0)], "b": [(0, 2.0), (0, 3.0), (0, 5.0)]}
    assert without_time(scalars(tmp_path / "second")) == {"run-b": [(0, 4.0)]}


def test_it_can_be_copied_and_pickled_in_the_middle_of_a_run(tmp_path):
    logger, writer = TensorBoardLogger(tmp_path), ScalarWriter()
    writer.write(logger, VALUES, 0)
    copies = copy.deepcopy(writer), pickle.loads(pickle.dumps(writer))
    for step, each in enumerate(copies, start=1):
        each.write(logger, VALUES, step)
    logger.finalize("success")
    assert [step for step, *_ in scalars(tmp_path)["mismatch/value_3"]] == [0, 1, 2]


def test_other_ranks_write_nothing_and_make_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    ScalarWriter().write(TensorBoardLogger(tmp_path / "none"), VALUES, 0)
    assert not (tmp_path / "none").exists()


class Asked:
    """Notes what a logger's own method is asked to log."""

    asked = None

    def log_metrics(self, metrics, step=None):
        self.asked = metrics, step


class OwnMethod(Asked, TensorBoardLogger):
    pass


class OwnLogger(Asked, CSVLogger):
    pass


class OwnWriter(TensorBoardLogger):
    class Writer(SummaryWriter):
        def add_scalar(self, tag, scalar_value, global_step=None, **kwargs):
            super().add_scalar(f"own/{tag}", scalar_value, global_step, **kwargs)

    @property
    def experiment(self):
        self.__dict__.setdefault("writer", self.Writer(self.log_dir))
        return self.__dict__["writer"]


@pytest.mark.parametrize("kind", [OwnMethod, OwnLogger])
def test_a_logger_with_a_method_of_its_own_is_asked(tmp_path, kind):
    logger = kind(tmp_path)
    ScalarWriter().write(logger, VALUES, 7)
    assert logger.asked == (VALUES, 7)


def test_a_method_put_in_place_of_the_loggers_is_asked(tmp_path):
    logger, spy = TensorBoardLogger(tmp_path), Asked()
    logger.log_metrics = spy.log_metrics
    ScalarWriter().write(logger, VALUES, 7)
    assert spy.asked == (VALUES, 7)


def test_a_writer_of_its_own_gets_each_scalar(tmp_path):
    logger = OwnWriter(tmp_path)
    ScalarWriter().write(logger, VALUES, 7)
    logger.experiment.close()
    assert set(scalars(tmp_path)) == {f"own/{name}" for name in VALUES}


def raises(self, *_):
    raise TypeError


@pytest.mark.parametrize("change", [raises, lambda self, *_: None], ids=["raises", "does something else"])
def test_a_logger_that_wants_more_of_its_writer_gets_the_real_one(tmp_path, monkeypatch, change):
    monkeypatch.setattr(summary._Gathering, "add_scalar", change)
    ours, theirs = side_by_side(TensorBoardLogger, tmp_path)
    assert without_time(ours) == without_time(theirs)
