"""Says what is wrong with the input of a run, each thing once, and ends training where it cannot go on."""

from __future__ import annotations

from lightning.pytorch.utilities import rank_zero_warn

from lightning_rollout_is.callbacks.faults import ALL_MISSING, malformation, refusal
from lightning_rollout_is.callbacks.point import Point, Reading
from lightning_rollout_is.first_look import SHIFTED


class Complaints:
    """Remembers what has been said."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def once(self, message: str) -> None:
        """Warn, unless that has been said."""
        if message not in self._said:
            self._said.add(message)
            rank_zero_warn(message)

    def sound(self, point: Point, reading: Reading) -> bool:
        """Whether a point means something, once its faults are told.

        Args:
            point: Which.
            reading: What it says.

        Raises:
            ValueError: Training cannot go on, on any rank.
        """
        if reading.shifted:
            self.once(SHIFTED)
        refused = refusal(reading.faults, point.metrics.config)
        if refused is not None:
            raise ValueError(refused)
        malformed = malformation(reading.faults)
        if malformed is not None:
            self.once(f"{malformed}. The mismatch statistics of such a step mean nothing and are not written")
            return False
        if reading.numbers[f"{point.prefix}rollout_is_missing_fraction"] == 1.0:
            self.once(ALL_MISSING)
        return True
