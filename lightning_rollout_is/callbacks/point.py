"""The statistics of one optimizer step on their way from the device to the loggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.callbacks.transfer import Transfer
from lightning_rollout_is.functional.statistics.faults import FaultMaxima
from lightning_rollout_is.functional.statistics.histogram import Histogram
from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics


class Reading(NamedTuple):
    """What a point says; the same on every rank."""

    scalars: dict[str, Tensor]
    """All values by key, on the host."""
    numbers: dict[str, float]
    """The same values."""
    faults: set[str]
    """What was wrong with the data of any rank: fields of :class:`FaultMaxima`."""
    shifted: bool
    """Whether one of the first batches of this rank looks shifted by a token."""
    histograms: dict[str, Histogram]
    """Distributions over valid tokens by key; none where the metric keeps no details."""


class Point:
    """Takes what the metric holds: one collective, on every rank, and one copy to the host.

    Args:
        metrics: Whose statistics; it may be reset right afterwards.
        step: The x of the point.
        prefix: Put before each key; ``None`` for the metric's own.
        looks: What the first look found and nobody has read, () each; it travels with the rest.
        transfer: How the copy is made.
    """

    def __init__(
        self,
        metrics: RolloutISMetrics,
        step: int,
        prefix: str | None = None,
        looks: Sequence[Tensor] = (),
        transfer: type[Transfer] = Transfer,
    ) -> None:
        self.metrics = metrics
        self.step = step
        self.prefix = metrics.prefix if prefix is None else prefix
        merged = metrics.merged()
        self._size = len(merged)
        self._transfer = transfer(torch.cat([merged, torch.stack(list(looks)).to(merged)]) if looks else merged)

    @property
    def under_way(self) -> bool:
        """Whether reading may have to wait; the same on every rank."""
        return self._transfer.under_way

    def read(self) -> Reading:
        """The values, once they have arrived."""
        arrived = self._transfer.wait()
        vector, looks = arrived[: self._size], arrived[self._size :]
        named = self.metrics.named(vector)
        numbers = torch.cat([torch.stack(list(named.values())), self.metrics.faults_of(vector)]).tolist()
        keys = [self._key_of(name) for name in named]
        faults = zip(FaultMaxima._fields, numbers[len(keys) :], strict=True)
        return Reading(
            scalars=dict(zip(keys, named.values(), strict=True)),
            numbers=dict(zip(keys, numbers, strict=False)),
            faults={fault for fault, seen in faults if seen > 0},
            shifted=any(looks.tolist()),
            histograms={
                self._key_of(name): Histogram(edges, counts.tolist())
                for name, (edges, counts) in self.metrics.bins_of(vector).items()
            },
        )

    def _key_of(self, name: str) -> str:
        return self.prefix + name.removeprefix(self.metrics.prefix)
