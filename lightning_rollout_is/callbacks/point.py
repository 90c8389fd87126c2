"""The statistics of one optimizer step on their way from the device to the loggers."""

from __future__ import annotations

import torch

from lightning_rollout_is.callbacks.transfer import Transfer
from lightning_rollout_is.functional.statistics.faults import FaultMaxima
from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics


class Point:
    """Takes what the metric holds: one collective, on every rank, and one copy to the host.

    Args:
        metrics: Whose statistics; it may be reset right afterwards.
        step: The x of the point.
        transfer: How the copy is made.
    """

    def __init__(self, metrics: RolloutISMetrics, step: int, transfer: type[Transfer] = Transfer) -> None:
        self.metrics = metrics
        self.step = step
        self._transfer = transfer(metrics.merged())

    @property
    def under_way(self) -> bool:
        """Whether reading may have to wait; the same on every rank."""
        return self._transfer.under_way

    def read(self) -> tuple[dict[str, float], set[str]]:
        """All values by name, and what was wrong with the data of any rank; the same on every rank."""
        vector = self._transfer.wait()
        values = self.metrics.named(vector)
        numbers = torch.cat([torch.stack(list(values.values())), self.metrics.faults_of(vector)]).tolist()
        faults = zip(FaultMaxima._fields, numbers[len(values) :], strict=True)
        return dict(zip(values, numbers, strict=False)), {fault for fault, seen in faults if seen > 0}
