"""One float64 vector holds every sum and maximum: one state, one collective, one copy to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_rollout_is.functional.statistics import ALL, Statistic
from lightning_rollout_is.functional.weights import ImportanceWeights


@dataclass(frozen=True)
class Packing:
    """The order in which some statistics lie in a vector: all sums, all maxima, then its label.

    The label is which statistics these are and which settings they hold for. It never changes, which is what a maximum
    of equals gives, and makes any two vectors differ that mean different things, even where their batches agree: a
    ``MetricCollection`` takes metrics of equal states for one and the same.
    """

    statistics: tuple[Statistic, ...]
    settings: tuple[float, ...]

    @property
    def label(self) -> tuple[float, ...]:
        """Numbers of the statistics, and their settings."""
        return (*(float(ALL.index(statistic)) for statistic in self.statistics), *self.settings)

    @property
    def sums(self) -> int:
        """Number of entries that merge by addition; the rest merges by maximum."""
        return sum(len(statistic.sums._fields) for statistic in self.statistics)

    @property
    def maxima(self) -> int:
        """Number of maxima."""
        return sum(len(statistic.maxima._fields) for statistic in self.statistics)

    def maxima_of(self, statistic: Statistic) -> slice:
        """Where the maxima of one of the statistics lie in the vector."""
        before = self.statistics[: self.statistics.index(statistic)]
        start = self.sums + sum(len(other.maxima._fields) for other in before)
        return slice(start, start + len(statistic.maxima._fields))

    def empty(self) -> Tensor:
        """The vector of no data: merging with it changes nothing."""
        values = [0.0] * self.sums + [-torch.inf] * self.maxima + list(self.label)
        return torch.tensor(values, dtype=torch.float64)

    def pack(self, weights: ImportanceWeights) -> Tensor:
        """The vector of one batch, without a label."""
        parts = [statistic.update(weights) for statistic in self.statistics]
        sums = torch.stack([column for part, _ in parts for column in part]).sum(-1)
        columns = [column for _, part in parts for column in part]
        if not columns or weights.vetoed.shape[0] == 0:
            return torch.cat([sums, sums.new_full((len(columns),), -torch.inf)])
        maxima = torch.stack(columns).masked_fill(weights.sums.tokens == 0.0, -torch.inf)
        return torch.cat([sums, maxima.amax(-1).to(sums.dtype)])

    def add(self, vector: Tensor, batch: Tensor) -> Tensor:
        """A vector that has its label, and the batch of one that has not."""
        merged = self.merge(torch.stack([vector[: len(batch)], batch]))
        return torch.cat([merged, vector[len(batch) :]])

    def merge(self, vectors: Tensor) -> Tensor:
        """One vector from several, (parts, size) to (size,)."""
        return torch.cat([vectors[:, : self.sums].sum(0), vectors[:, self.sums :].amax(0)])

    def unpack(self, vector: Tensor) -> list[tuple[Any, Any]]:
        """Sums and maxima of each statistic, by name."""
        scalars = iter(vector.unbind())
        sums = [statistic.sums(*(next(scalars) for _ in statistic.sums._fields)) for statistic in self.statistics]
        maxima = [statistic.maxima(*(next(scalars) for _ in statistic.maxima._fields)) for statistic in self.statistics]
        return list(zip(sums, maxima, strict=True))

    def compute(self, vector: Tensor) -> dict[str, Tensor]:
        """Every named value."""
        values: dict[str, Tensor] = {}
        for statistic, (sums, maxima) in zip(self.statistics, self.unpack(vector), strict=True):
            values.update(statistic.compute(sums, maxima))
        return values
