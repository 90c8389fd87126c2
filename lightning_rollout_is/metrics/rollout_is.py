"""All statistics of the specification in one metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.functional import statistics
from lightning_rollout_is.functional.statistics import Statistic
from lightning_rollout_is.functional.statistics.faults import FaultMaxima
from lightning_rollout_is.metrics.base import PackedMetric
from lightning_rollout_is.metrics.group_ids import GroupNames
from lightning_rollout_is.metrics.plot import plot_grades


class RolloutISMetrics(PackedMetric):
    """Mismatch statistics, exact over any split of the data into micro-batches and ranks.

    Every value is a function of sums and maxima, kept in one float64 vector: it equals what one process would get from
    the concatenated batch. Not saved in checkpoints.

    Args:
        config: A :class:`RolloutISConfig` with a threshold, or an ``algorithm`` mapping.
        prefix: Put before each name.
        details: Add what the specification does not ask for, at the price of a second pass over the tokens: the
            weights as applied, chi-square, differences of probabilities, standard errors, quantiles of the log ratio,
            its profile along the response, and two histograms.
        groups: Names of parts of the data (environments, data sources, turns) whose core values are computed as well.
        kwargs: ``compile``, to make weights and statistics one kernel at the first batch, and what any
            ``torchmetrics.Metric`` takes.

    Returns:
        ``compute()`` gives a dict of float64 scalars, the same keys on every rank and step, NaN where undefined:
        27 values of the specification (29 in mode ``"mask"``) and ``rollout_is_missing_fraction``; 34 more with
        ``details``, and with groups 5 for each and ``rollout_is_ungrouped_fraction``.

    Raises:
        ValueError: The threshold is null.

    Example:
        >>> import torch
        >>> metrics = RolloutISMetrics(RolloutISConfig(rollout_is_threshold=2.0))
        >>> metrics.update(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.5]]), torch.tensor([[1, 1]]))
        >>> round(metrics.compute()["mismatch/rollout_is_mean"].item(), 4)
        1.6487
    """

    faults: Tensor
    """:class:`FaultMaxima` of all ranks as of the last ``compute()``, which is what told this rank of the others'."""

    def __init__(
        self,
        config: RolloutISConfig | Mapping[Any, Any],
        prefix: str = "mismatch/",
        details: bool = False,
        groups: Sequence[str] = (),
        **torchmetrics_kwargs: Any,
    ) -> None:
        config, names = RolloutISConfig.of(config), GroupNames(groups)
        chosen = _statistics_of(config, details, names.names)
        super().__init__(config, chosen, groups=names, **torchmetrics_kwargs)
        self.prefix = prefix
        self.faults = self.faults_of(self.packed)
        self._merged: tuple[Tensor, Tensor] | None = None

    def compute(self) -> dict[str, Tensor]:
        """Every value under its prefixed name; on several ranks, call it on all of them."""
        # Once this returns, torchmetrics has put the vector of this rank alone back into its place.
        self.faults = self.faults_of(self.packed)
        return self.named(self.packed)

    def plot(
        self, val: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]] | None = None, ax: Any = None
    ) -> tuple[Any, Any]:
        """Draw how the statistics that matter read: a row for each, a column for each step, green, amber or red.

        The values at the right are the last ones. For curves, see :func:`~lightning_rollout_is.plot_rollout_is`.

        Args:
            val: What ``compute()`` or ``forward()`` gave, or a sequence of such; ``None`` computes one, on every rank.
            ax: A matplotlib ``Axes`` to draw into.

        Returns:
            The matplotlib ``Figure`` and ``Axes``.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: There is no finite value.

        Example:
            >>> import torch
            >>> metrics = RolloutISMetrics(RolloutISConfig(rollout_is_threshold=2.0))
            >>> metrics.update(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.5]]), torch.tensor([[1, 1]]))
            >>> figure, axes = metrics.plot()
            >>> axes.get_yticklabels()[0].get_text()
            'K3, nats a token'
        """
        return plot_grades(self.compute() if val is None else val, self.prefix, ax)

    def merged(self) -> Tensor:
        """The packed vector of all ranks, on the device; on several ranks, call it on all of them.

        One collective, and none if nothing was recorded or reset since the last call.

        Example:
            >>> metrics = RolloutISMetrics(RolloutISConfig(rollout_is_threshold=2.0))
            >>> metrics.named(metrics.merged())["mismatch/rollout_is_missing_fraction"].isnan().item()
            True
        """
        if self._merged is None or self._merged[0] is not self.packed:
            with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self.sync_on_compute):
                merged = self.packed
            # Every update and reset puts a new vector in place of this rank's own.
            self._merged = self.packed, merged
        return self._merged[1]

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Every value of a packed vector under its prefixed name, on the device of the vector."""
        return {f"{self.prefix}{name}": value for name, value in self.packing.compute(vector).items()}

    def bins_of(self, vector: Tensor) -> dict[str, tuple[Sequence[float], Tensor]]:
        """Distributions over valid tokens by prefixed name: of log ratios, and of applied weights.

        Args:
            vector: A packed vector.

        Returns:
            The edges of the bins, rising, (bins + 1,), and the counts, (bins,), on the device of the vector. Empty
            without ``details``.
        """
        return {
            f"{self.prefix}{name}": (edges, vector[self.packing.sums_of(statistic)])
            for name, (statistic, edges) in statistics.HISTOGRAMS.items()
            if statistic in self.packing.statistics
        }

    def faults_of(self, vector: Tensor) -> Tensor:
        """The :class:`FaultMaxima` of a packed vector."""
        return vector[self._fault_entries]

    def record_fault(self, fault: str) -> None:
        """Note that a batch was refused, so that all ranks learn of it with the next ``compute()``.

        Args:
            fault: A field of :class:`FaultMaxima`.
        """
        packed = self.packed.clone()
        packed[self._fault_entries][FaultMaxima._fields.index(fault)] = 1.0
        self.packed, self._computed = packed, None

    def reset_statistics(self) -> None:
        """Forget all batches but not their faults: for statistics that nobody has read."""
        faults = self.packed[self._fault_entries]
        self.reset()
        self.packed[self._fault_entries] = faults

    @property
    def _fault_entries(self) -> slice:
        return self.packing.maxima_of(statistics.FAULTS)


def _statistics_of(config: RolloutISConfig, details: bool, groups: tuple[str, ...]) -> tuple[Statistic, ...]:
    masks = config.rollout_is_mode == "mask"
    chosen = tuple(statistic for statistic in statistics.ALL if masks or statistic is not statistics.MASKING)
    extra = statistics.DETAILS if details else ()
    return (*chosen, *extra, *([statistics.groups_named(groups)] if groups else []))
