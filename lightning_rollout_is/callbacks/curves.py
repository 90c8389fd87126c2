"""Where the values of an optimizer step go."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from lightning.pytorch import Trainer
from torch import Tensor

from lightning_rollout_is.callbacks.boards import is_board
from lightning_rollout_is.callbacks.summary import ScalarWriter


class Curves:
    """Writes to every logger of a Trainer and to its ``callback_metrics``.

    Args:
        flush_seconds: After a point, loggers write out what they hold if that many seconds have passed since they last
            did.
    """

    def __init__(self, flush_seconds: float) -> None:
        self.flush_seconds = flush_seconds
        self._flushed = -math.inf
        self._writer = ScalarWriter()

    def add(
        self,
        trainer: Trainer,
        scalars: Mapping[str, Tensor],
        numbers: Mapping[str, float],
        step: int,
        beside: Mapping[str, float] | None = None,
    ) -> bool:
        """Add a point to each curve, but for values that are not finite.

        Args:
            trainer: Whose loggers and metrics.
            scalars: Values by key, on the host: ``callback_metrics`` holds tensors.
            numbers: The same values: loggers take numbers.
            step: The x of the point.
            beside: Curves for the eye, which TensorBoard alone gets.

        Returns:
            Whether there was one to add.
        """
        defined = {key: number for key, number in numbers.items() if math.isfinite(number)}
        if not defined:
            return False
        trainer.callback_metrics.update({key: scalars[key] for key in defined})
        for logger in trainer.loggers:
            self._writer.write(logger, {**defined, **beside} if beside and is_board(logger) else defined, step)
        self._flush(trainer)
        return True

    def _flush(self, trainer: Trainer) -> None:
        if time.monotonic() - self._flushed >= self.flush_seconds:
            for logger in trainer.loggers:
                logger.save()
            self._flushed = time.monotonic()
