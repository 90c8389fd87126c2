"""Where the values of an optimizer step go."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import torch
from lightning.pytorch import Trainer

from lightning_rollout_is.callbacks.summary import write_scalars


class Curves:
    """Writes to every logger of a Trainer and to its ``callback_metrics``.

    Args:
        flush_seconds: After a point, loggers write out what they hold if that many seconds have passed since they last
            did.
    """

    def __init__(self, flush_seconds: float) -> None:
        self.flush_seconds = flush_seconds
        self._flushed = -math.inf

    def add(self, trainer: Trainer, values: Mapping[str, float], step: int) -> bool:
        """Add a point to each curve, but for values that are not finite.

        Returns:
            Whether there was one to add.
        """
        defined = {key: value for key, value in values.items() if math.isfinite(value)}
        if not defined:
            return False
        scalars = torch.tensor(list(defined.values()), dtype=torch.float64).unbind()
        trainer.callback_metrics.update(zip(defined, scalars, strict=True))
        for logger in trainer.loggers:
            write_scalars(logger, defined, step)
        self._flush(trainer)
        return True

    def _flush(self, trainer: Trainer) -> None:
        if time.monotonic() - self._flushed >= self.flush_seconds:
            for logger in trainer.loggers:
                logger.save()
            self._flushed = time.monotonic()
