"""Many scalars to TensorBoard at the price of one: a single event holds them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning.fabric.loggers.logger import Logger
from lightning.fabric.loggers.tensorboard import TensorBoardLogger


class ScalarWriter:
    """Does what ``logger.log_metrics(values, step)`` does, only faster where the logger is Lightning's for TensorBoard.

    Under the same tags, at the same step and time and with the same values, but in one event, which is written again
    and again as long as the logger and the names stay the same. Any other logger, and one that has a ``log_metrics``
    or a writer of its own, is simply asked to log.
    """

    def __init__(self) -> None:
        self._last: tuple[Logger, list[str], Any] | None = None

    def write(self, logger: Logger, values: dict[str, float], step: int) -> None:
        """Log scalars.

        Args:
            logger: Any logger of Lightning.
            values: Scalars by name.
            step: Their x.
        """
        writer = _event_writer_of(logger)
        summary = None if writer is None else self._summary_of(logger, values, step)
        if summary is None:
            logger.log_metrics(values, step)
        else:
            writer.add_summary(summary, step)

    def _summary_of(self, logger: Logger, values: dict[str, float], step: int) -> Any:
        names = list(values)
        if self._last is None or self._last[0] is not logger or self._last[1] != names:
            self._last = logger, names, _summary_by(logger, values, step)
            return self._last[2]
        summary = self._last[2]
        if summary is not None:
            for entry, value in zip(summary.value, values.values(), strict=True):
                entry.simple_value = value
        return summary


def tags_of(logger: Logger, names: Sequence[str]) -> list[str]:
    """What a logger of Lightning for TensorBoard calls scalars: its own prefix may come first.

    Example:
        >>> tags_of(TensorBoardLogger("logs", prefix="run"), ["loss"])
        ['run-loss']
    """
    summary = _summary_by(logger, dict.fromkeys(names, 0.0), 0)
    return list(names) if summary is None else [value.tag for value in summary.value]


def _event_writer_of(logger: Any) -> Any:
    """Where an event can be put, or ``None`` where the logger must be asked: on other ranks, and after ``finalize``."""
    from torch.utils.tensorboard import SummaryWriter  # takes a second, which only a logger that needs it shall cost

    # Seen from the instance, so that a method put in its place is respected.
    if getattr(logger.log_metrics, "__func__", None) is not TensorBoardLogger.log_metrics:
        return None
    writer = logger.experiment
    return writer.file_writer if type(writer) is SummaryWriter else None


def _summary_by(logger: Any, values: dict[str, float], step: int) -> Any:
    """The logger names the values itself, as its prefix and whatever else is its own affair would have them."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

    summary = Summary()
    try:
        type(logger).log_metrics(_StandIn(logger, summary), values, step)
    except Exception:
        # Another release of Lightning may want more of its writer than is here, and must then have the real one.
        return None
    return summary if len(summary.value) == len(values) else None


class _StandIn:
    """A logger in everything but the writer that it writes to."""

    def __init__(self, logger: Any, summary: Any) -> None:
        self.experiment = _Gathering(summary)
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


class _Gathering:
    """A writer that gathers scalars."""

    def __init__(self, summary: Any) -> None:
        self._add = summary.value.add

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        self._add(tag=tag, simple_value=scalar_value)
