"""One float64 vector holds every sum and maximum: one state, one collective, one copy to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_rollout_is.functional.groups import GroupSums
from lightning_rollout_is.functional.statistics import DETAILS, Statistic, number_of
from lightning_rollout_is.functional.weights import ImportanceWeights


@dataclass(frozen=True)
class Packing:
    """The order in which some statistics lie in a vector: all sums, all maxima, then its label.

    Statistics whose sums are vectors come last.

    The label is which statistics these are and which settings they hold for. It never changes, which is what a maximum
    of equals gives, and makes any two vectors differ that mean different things, even where their batches agree: a
    ``MetricCollection`` takes metrics of equal states for one and the same.
    """

    statistics: tuple[Statistic, ...]
    settings: tuple[float, ...]

    @property
    def label(self) -> tuple[float, ...]:
        """Numbers of the statistics, and their settings."""
        return (*(float(number_of(statistic)) for statistic in self.statistics), *self.settings)

    @property
    def sums(self) -> int:
        """Number of entries that merge by addition; the rest merges by maximum."""
        return sum(_size(statistic) for statistic in self.statistics)

    @property
    def maxima(self) -> int:
        """Number of maxima."""
        return sum(len(statistic.maxima._fields) for statistic in self.statistics)

    @property
    def has_details(self) -> bool:
        """Whether a statistic needs a second pass over the tokens."""
        return any(statistic in DETAILS for statistic in self.statistics)

    @property
    def groups(self) -> int | None:
        """Number of groups that are kept apart; ``None`` for no statistic of groups."""
        widths = (statistic.width for statistic in self.statistics if statistic.sums is GroupSums)
        return next((width - 1 for width in widths if width), None)

    def sums_of(self, statistic: Statistic) -> slice:
        """Where the sums of one of the statistics lie in the vector."""
        start = sum(_size(other) for other in self.statistics[: self.statistics.index(statistic)])
        return slice(start, start + _size(statistic))

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
        columns = [column for part, _ in parts for column in part]
        scalars = torch.stack([column for column in columns if column.ndim == 1]).sum(-1)
        sums = torch.cat([scalars, *(column.sum(0) for column in columns if column.ndim == 2)])
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
        return [
            (
                _sums_from(statistic, vector[self.sums_of(statistic)]),
                statistic.maxima(*vector[self.maxima_of(statistic)]),
            )
            for statistic in self.statistics
        ]

    def compute(self, vector: Tensor) -> dict[str, Tensor]:
        """Every named value."""
        values: dict[str, Tensor] = {}
        for statistic, (sums, maxima) in zip(self.statistics, self.unpack(vector), strict=True):
            values.update(statistic.compute(sums, maxima))
        return values


def _size(statistic: Statistic) -> int:
    return len(statistic.sums._fields) * (statistic.width or 1)


def _sums_from(statistic: Statistic, entries: Tensor) -> Any:
    if statistic.width is None:
        return statistic.sums(*entries)
    return statistic.sums(*entries.view(-1, statistic.width))
