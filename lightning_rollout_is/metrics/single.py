"""One value a metric, for a ``MetricCollection`` or ``self.log``; each is a name in the shared statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor

from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.functional import statistics
from lightning_rollout_is.functional.statistics import Statistic
from lightning_rollout_is.metrics.base import PackedMetric
from lightning_rollout_is.metrics.plot import plot_line


class SingleMetric(PackedMetric):
    """A metric whose ``compute()`` is one float64 scalar, NaN where undefined.

    Metrics of one statistic and equal settings share a state inside a ``MetricCollection``.
    """

    statistic: ClassVar[Statistic]
    value: str

    def __init__(self, config: RolloutISConfig | Mapping[Any, Any], **torchmetrics_kwargs: Any) -> None:
        super().__init__(config, (type(self).statistic,), **torchmetrics_kwargs)

    def compute(self) -> Tensor:
        """The value; on several ranks, call it on all of them."""
        return self.values()[self.value]

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any = None) -> tuple[Any, Any]:
        """Draw a value, or one a step, over its healthy range; as for any ``torchmetrics.Metric``.

        Args:
            val: What ``compute()`` or ``forward()`` gave, or a sequence of such; ``None`` computes one, on every rank.
            ax: A matplotlib ``Axes`` to draw into.

        Returns:
            The matplotlib ``Figure`` and ``Axes``.

        Raises:
            ImportError: matplotlib is not installed.

        Example:
            >>> import torch
            >>> metric = EffectiveSampleSize({"rollout_is_threshold": 2.0})
            >>> figure, axes = metric.plot([torch.tensor(0.9), torch.tensor(0.4)])
            >>> axes.get_legend_handles_labels()[1]
            ['healthy: 0.5 or more']
        """
        return plot_line(self, self.value, val, ax)


class ImportanceWeightMean(SingleMetric):
    """Mean raw importance weight over valid tokens; healthy near 1, a warning under 0.5 or over 2.

    Example:
        >>> import torch
        >>> metric = ImportanceWeightMean(RolloutISConfig(rollout_is_threshold=2.0))
        >>> metric.update(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), torch.tensor([[1]]))
        >>> round(metric.compute().item(), 4)
        1.6487
    """

    statistic = statistics.WEIGHT
    value = "rollout_is_mean"


class ImportanceWeightStd(SingleMetric):
    """Standard deviation of the weights clamped to [lower, upper]; healthy under 0.5, a warning over 1."""

    statistic = statistics.WEIGHT
    value = "rollout_is_std"


class ImportanceWeightMax(SingleMetric):
    """Largest raw weight, at most exp(20)."""

    statistic = statistics.WEIGHT
    value = "rollout_is_max"


class EffectiveSampleSize(SingleMetric):
    """Effective sample size of the weights clamped to [lower, upper], as a fraction in (0, 1].

    Healthy over 0.5, a warning under 0.3. Source: Kish, "Survey Sampling" (1965).
    """

    statistic = statistics.WEIGHT
    value = "rollout_is_eff_sample_size"
    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0


class VetoFraction(SingleMetric):
    """Fraction of sequences rejected by the veto; healthy under 0.05, a warning over 0.1."""

    statistic = statistics.VETO
    value = "rollout_is_veto_fraction"
    higher_is_better = False
    plot_lower_bound = 0.0


class CatastrophicTokenFraction(SingleMetric):
    """Fraction of valid tokens under the veto threshold; a warning over 0.01."""

    statistic = statistics.VETO
    value = "rollout_is_catastrophic_token_fraction"
    higher_is_better = False
    plot_lower_bound = 0.0


class PerplexityRatio(SingleMetric):
    """Mean over sequences of training over rollout perplexity; above 1, training is the less confident."""

    statistic = statistics.PERPLEXITY
    value = "mismatch_ppl_ratio"


class MissingFraction(SingleMetric):
    """Fraction of the tokens inside the mask without a usable log-prob; 0 in a sound pipeline."""

    statistic = statistics.MISSING
    value = "rollout_is_missing_fraction"
    higher_is_better = False
    plot_lower_bound = 0.0


class RolloutKL(SingleMetric):
    """KL(rollout || training) in nats a token; a warning beyond 0.1 either way.

    Args:
        config: Settings, or an ``algorithm`` mapping.
        estimator: ``"k1"``, unbiased and of either sign, or ``"k3"``, never negative and of less variance.
        torchmetrics_kwargs: As for any ``torchmetrics.Metric``.

    Raises:
        ValueError: Unknown estimator.
    """

    statistic = statistics.DIVERGENCE
    higher_is_better = False

    def __init__(
        self,
        config: RolloutISConfig | Mapping[Any, Any],
        estimator: Literal["k1", "k3"] = "k3",
        **torchmetrics_kwargs: Any,
    ) -> None:
        names = {"k1": "mismatch_kl", "k3": "mismatch_k3_kl"}
        if estimator not in names:
            raise ValueError(f"estimator = {estimator!r} is not allowed; allowed: {', '.join(names)}")
        super().__init__(config, **torchmetrics_kwargs)
        self.value = names[estimator]


class MaskedFraction(SingleMetric):
    """Fraction of valid tokens zeroed by the bounds; healthy under 0.1, a warning over 0.3.

    Raises:
        ValueError: The mode is not ``"mask"``: truncation zeroes nothing.
    """

    statistic = statistics.MASKING
    value = "rollout_is_masked_fraction"
    higher_is_better = False
    plot_lower_bound = 0.0

    def __init__(self, config: RolloutISConfig | Mapping[Any, Any], **torchmetrics_kwargs: Any) -> None:
        config = RolloutISConfig.of(config)
        if config.rollout_is_mode != "mask":
            raise ValueError(f"rollout_is_mode = {config.rollout_is_mode!r} masks nothing; MaskedFraction needs 'mask'")
        super().__init__(config, **torchmetrics_kwargs)
