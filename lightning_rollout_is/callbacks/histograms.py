"""Distributions on TensorBoard's pages of histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from lightning.pytorch import Trainer

from lightning_rollout_is.callbacks.boards import boards_of
from lightning_rollout_is.functional.statistics.histogram import Histogram

TAIL = 0.01
"""Share of the counts, at either end, that is drawn in the outermost bin."""
WIDTH = 0.02
"""Least width of a picture: a distribution that is narrower is a spike, and is to look like one."""


class Histograms:
    """Writes the distributions of some points: the first, every n-th step's, and the last of a run.

    Args:
        every_n_steps: 0 for none.
    """

    def __init__(self, every_n_steps: int) -> None:
        self.every_n_steps = every_n_steps
        self.begin()

    def begin(self) -> None:
        """Begin a run."""
        self._written: int | None = None
        self._last: tuple[int, Mapping[str, Histogram]] | None = None

    def add(self, trainer: Trainer, histograms: Mapping[str, Histogram], step: int) -> None:
        """Write a point that is due, and keep one that is not in case it stays the last."""
        if not self.every_n_steps:
            return
        self._last = step, histograms
        if self._written is None or (step + 1) // self.every_n_steps > (self._written + 1) // self.every_n_steps:
            self.end(trainer)

    def end(self, trainer: Trainer) -> None:
        """Write the last point, if it was not."""
        if self._last is None:
            return
        self._written, histograms = self._last
        self._last = None
        for board in boards_of(trainer):
            for key, histogram in histograms.items():
                drawn = readable(histogram)
                if drawn.counts:
                    board.writer.add_histogram_raw(board.tag(key), **_raw(drawn), global_step=self._written)


def readable(histogram: Histogram, tail: float = TAIL, width: float = WIDTH) -> Histogram:
    """The bins that a picture needs: hardly filled ones at either end are drawn together, empty ones left out.

    TensorBoard draws some thirty bars of one width between the outermost bins of all steps: a single token far away
    would squeeze all others into one bar.

    Args:
        histogram: Its outermost edges may be infinite.
        tail: Share of the counts, at either end, that goes into the outermost bin that is drawn.
        width: Empty bins on both sides are kept until the picture is as wide.

    Returns:
        A part of the bins, with all of the counts; no bin at all where nothing was counted.

    Example:
        >>> readable(Histogram((0.0, 1.0, 2.0, 3.0, 4.0), (0.0, 5.0, 1.0, 0.0)))
        Histogram(edges=(1.0, 2.0, 3.0), counts=(5.0, 1.0))
        >>> readable(Histogram((0.0, 1.0, 2.0, 3.0), (1.0, 998.0, 1.0)))
        Histogram(edges=(1.0, 2.0), counts=(1000.0,))
    """
    edges, counts = _finite(histogram.edges), histogram.counts
    total = sum(counts)
    if not total > 0:
        return Histogram((), ())
    first, last = _cut(counts, tail * total), len(counts) - 1 - _cut(counts[::-1], tail * total)
    kept = [0.0] * len(counts)
    kept[first : last + 1] = counts[first : last + 1]
    kept[first] += sum(counts[:first])
    kept[last] += sum(counts[last + 1 :])
    while edges[last + 1] - edges[first] < width and (first > 0 or last < len(counts) - 1):
        first, last = max(first - 1, 0), min(last + 1, len(counts) - 1)
    return Histogram(edges[first : last + 2], tuple(kept[first : last + 1]))


def _cut(counts: Sequence[float], allowed: float) -> int:
    """How many bins from the start hold no more than that."""
    return next(place for place, seen in enumerate(accumulate(counts)) if seen > allowed)


def _finite(edges: Sequence[float]) -> tuple[float, ...]:
    """An end bin without an end is drawn as wide as its neighbour."""
    low, *between, high = edges
    if not math.isfinite(low):
        low = 2 * between[0] - (between[1] if len(between) > 1 else between[0] + 1.0)
    if not math.isfinite(high):
        high = 2 * between[-1] - (between[-2] if len(between) > 1 else between[-1] - 1.0)
    return low, *between, high


def _raw(histogram: Histogram) -> dict[str, object]:
    """What TensorBoard stores: sums are those of the middles of the bins."""
    middles = [(low + high) / 2 for low, high in pairwise(histogram.edges)]
    weighted = list(zip(middles, histogram.counts, strict=True))
    return {
        "min": histogram.edges[0],
        "max": histogram.edges[-1],
        "num": sum(histogram.counts),
        "sum": sum(middle * count for middle, count in weighted),
        "sum_squares": sum(middle**2 * count for middle, count in weighted),
        "bucket_limits": list(histogram.edges[1:]),
        "bucket_counts": list(histogram.counts),
    }
