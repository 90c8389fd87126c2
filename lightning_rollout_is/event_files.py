"""Scalars and hyperparameters in the event files of TensorBoard."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

FRAME_BYTES = 16
"""What a record adds to its payload: a length of 8 bytes and two checksums of 4."""
TELL_BYTES = 2**18
"""After how many bytes it is told how far the reading has come: each time costs a bar on a screen some microseconds."""


class Curve(NamedTuple):
    """One scalar over the steps."""

    steps: Sequence[int]
    """Strictly increasing."""
    values: Sequence[float]
    """One a step; NaN and infinities as they were written."""


class EventLog(NamedTuple):
    """What the event files of one folder hold."""

    curves: dict[str, Curve]
    """By tag."""
    hyperparameters: dict[str, Any]
    """As a logger wrote them for TensorBoard's hparams page; empty where it did not."""
    notes: list[str]
    """What could not be read, in words."""


def event_files_in(folder: str | Path) -> list[Path]:
    """The event files that lie in a folder itself, oldest first."""
    return sorted(path for path in Path(folder).glob("*tfevents*") if path.is_file())


def read_event_log(folder: str | Path, advance: Callable[[int], None] | None = None) -> EventLog:
    """Read every event file of a folder.

    A run that was resumed has several files; where two hold the same step, the later one counts. A file that breaks
    off is read up to there.

    Args:
        folder: A logger's ``log_dir``.
        advance: Called now and then with the number of bytes that were read since the last call.

    Returns:
        The curves, and notes on what could not be read.

    Raises:
        FileNotFoundError: The folder has no event file.
    """
    files = event_files_in(folder)
    if not files:
        raise FileNotFoundError(f"no TensorBoard event file in {folder}")
    reader = _Reader(advance or (lambda size: None))
    for file in files:
        reader.read(file)
    curves = {tag: _in_order(steps, values) for tag, (steps, values) in reader.points.items()}
    return EventLog(curves, reader.hyperparameters, reader.notes)


def read_events(log_dir: str | Path) -> dict[str, list[float]]:
    """Every scalar of the event files in a folder.

    Args:
        log_dir: A logger's ``log_dir``.

    Returns:
        Name to values, in the order of the steps.

    Raises:
        FileNotFoundError: The folder has no event file.
    """
    return {tag: list(curve.values) for tag, curve in read_event_log(log_dir).curves.items()}


class _Reader:
    """Gathers points from one file after another."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.advance = advance
        self.points: dict[str, tuple[array[int], array[float]]] = {}
        self.hyperparameters: dict[str, Any] = {}
        self.notes: list[str] = []

    def read(self, file: Path) -> None:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]

        size, done, told, step = file.stat().st_size, 0, 0, None
        try:
            for record in _records(file):
                event = Event.FromString(record)
                done += len(record) + FRAME_BYTES
                step = event.step
                self._add(event)
                if done - told >= TELL_BYTES:
                    self.advance(done - told)
                    told = done
        except (DecodeError, OSError) as error:
            self.notes.append(f"{file.name}: {error}")
        self.advance(size - told)
        # The reader of TensorBoard stops without a word at a record that is damaged.
        if done < size:
            kept = "nothing before it" if step is None else f"the points up to step {step} are kept"
            self.notes.append(
                f"{file.name} cannot be read beyond byte {done} of {size}: it is damaged, still being written, or no "
                f"event file; {kept}"
            )
        elif size == 0:
            self.notes.append(f"{file.name} is empty: the run had not written anything yet")

    def _add(self, event: Any) -> None:
        if event.HasField("session_log") and event.session_log.status == event.session_log.START:
            self._drop_from(event.step)
        for value in event.summary.value:
            number = _number(value)
            if number is not None:
                steps, values = self.points.setdefault(value.tag, (array("q"), array("d")))
                steps.append(event.step)
                values.append(number)
            elif value.metadata.plugin_data.plugin_name == "hparams":
                self.hyperparameters.update(_hyperparameters(value.metadata.plugin_data.content))

    def _drop_from(self, step: int) -> None:
        """A writer that begins again at a step says so: what lies beyond was never trained on."""
        for tag, (steps, values) in self.points.items():
            kept = [place for place, at in enumerate(steps) if at < step]
            self.points[tag] = array("q", [steps[i] for i in kept]), array("d", [values[i] for i in kept])


def _records(file: Path) -> Iterator[bytes]:
    from tensorboard.backend.event_processing.event_file_loader import (  # type: ignore[import-untyped]
        RawEventFileLoader,
    )

    yield from RawEventFileLoader(str(file)).Load()


def _number(value: Any) -> float | None:
    """The scalar that a summary holds in either of TensorBoard's two ways, or ``None``."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or value.tensor.tensor_shape.dim:
        return None
    from tensorboard.util.tensor_util import make_ndarray  # type: ignore[import-untyped]

    content = make_ndarray(value.tensor)
    return float(content) if content.dtype.kind in "fiu" else None


def _hyperparameters(content: bytes) -> dict[str, Any]:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # type: ignore[import-untyped]

    started = HParamsPluginData.FromString(content).session_start_info
    return {key: getattr(value, str(value.WhichOneof("kind")), None) for key, value in started.hparams.items()}


def _in_order(steps: array[int], values: array[float]) -> Curve:
    """Sorted by step; of several values at one step, the one that was written last."""
    if all(earlier < later for earlier, later in pairwise(steps)):
        return Curve(steps, values)
    last = dict(zip(steps, values, strict=True))
    ordered = sorted(last)
    return Curve(array("q", ordered), array("d", [last[step] for step in ordered]))


def finite_points(curve: Curve) -> Curve:
    """The points whose value is a finite number.

    Example:
        >>> finite_points(Curve([0, 1, 2], [1.0, float("nan"), 3.0]))
        Curve(steps=[0, 2], values=[1.0, 3.0])
    """
    if all(map(math.isfinite, curve.values)):
        return curve
    kept = [(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if math.isfinite(value)]
    return Curve([step for step, _ in kept], [value for _, value in kept])
