"""Loggers that show more than curves: TensorBoard's, on the rank that writes."""

from __future__ import annotations

from typing import Any, NamedTuple

from lightning.fabric.loggers.tensorboard import TensorBoardLogger
from lightning.pytorch import Trainer

from lightning_rollout_is.callbacks.summary import tags_of

PROBE = "x"


class Board(NamedTuple):
    """One TensorBoard folder."""

    logger: Any
    """Lightning's, which has the settings that the run was started with in ``hparams``."""
    writer: Any
    """A ``SummaryWriter``."""
    before: str
    """What the logger puts before each name."""

    def tag(self, name: str) -> str:
        """What TensorBoard knows a value by."""
        return f"{self.before}{name}"


def is_board(logger: Any) -> bool:
    """Whether a logger of Lightning writes for TensorBoard, on this rank or on another."""
    return isinstance(logger, TensorBoardLogger)


def boards_of(trainer: Trainer) -> list[Board]:
    """The boards that this process writes to; none on other ranks."""
    loggers = [logger for logger in trainer.loggers if is_board(logger)]
    return [board for logger in loggers if (board := _board(logger)) is not None]


def _board(logger: Any) -> Board | None:
    from torch.utils.tensorboard import SummaryWriter  # takes a second, which only a logger that needs it shall cost

    writer = logger.experiment
    # Elsewhere than on the rank that writes, Lightning gives a writer that does nothing.
    if not isinstance(writer, SummaryWriter):
        return None
    return Board(logger, writer, tags_of(logger, [PROBE])[0].removesuffix(PROBE))
