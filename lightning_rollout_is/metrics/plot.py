"""torchmetrics' ``plot()``: values on their healthy ranges, one line a metric or one row a statistic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor
from torchmetrics import Metric

from lightning_rollout_is.healthy_ranges import GRADE_COLORS, RANGES, HealthyRange

Values: TypeAlias = Mapping[str, Tensor]
"""What ``compute()`` of all statistics gives."""
GRADES = tuple(GRADE_COLORS)
JUDGED = tuple(name for name, healthy in RANGES.items() if healthy.limits())
"""The statistics that have a healthy range."""


def plot_line(metric: Metric, name: str, val: Any, ax: Any) -> tuple[Any, Any]:
    """Draw a metric's value, or one value a step, over the bands of its healthy range.

    Args:
        metric: Whose bounds and class name stand beside it.
        name: Of the value, without prefix.
        val: A value of ``compute()`` or ``forward()``, or a sequence of such; ``None`` computes one.
        ax: Where; ``None`` for a figure of its own.

    Returns:
        Figure and axes.

    Raises:
        ImportError: matplotlib is not installed.
    """
    _require_matplotlib()
    from torchmetrics.utilities.plot import plot_single_or_multi_val

    figure, axes = plot_single_or_multi_val(
        metric.compute() if val is None else val,
        ax=ax,
        higher_is_better=metric.higher_is_better,
        lower_bound=metric.plot_lower_bound,
        upper_bound=metric.plot_upper_bound,
        legend_name=metric.plot_legend_name,
        name=type(metric).__name__,
    )
    if name in RANGES:
        _bands(axes, RANGES[name])
    return figure or axes.get_figure(), axes


def plot_grades(values: Values | Sequence[Values], prefix: str, ax: Any) -> tuple[Any, Any]:
    """Draw how each statistic reads: a row for each, a column for each step, in the colour of its grade.

    Args:
        values: What ``compute()`` gave, or a sequence of such, one a step.
        prefix: What the names begin with.
        ax: Where; ``None`` for a figure of its own.

    Returns:
        Figure and axes.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: None of the statistics is there.
    """
    _require_matplotlib()
    steps = [values] if isinstance(values, Mapping) else list(values)
    # A step may lack what another has.
    rows = {name: [float(step.get(prefix + name, math.nan)) for step in steps] for name in JUDGED}
    rows = {name: numbers for name, numbers in rows.items() if any(map(math.isfinite, numbers))}
    if not rows:
        raise ValueError(
            f"there is no finite value under names such as {prefix}rollout_is_mean; give what compute() returned after "
            "an update"
        )
    figure, axes = _axes(ax, height=1.4 + 0.3 * len(rows), width=9.0 + min(6.0, 0.2 * len(steps)))
    _color(axes, rows)
    _label(axes, rows)
    axes.get_xaxis().set_visible(len(steps) > 1)
    return figure, axes


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'lightning-rollout-is[plots]'") from error


def _axes(ax: Any, height: float, width: float) -> tuple[Any, Any]:
    if ax is not None:
        return ax.get_figure(), ax
    # As torchmetrics does, which is what makes a notebook show it.
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    return figure, axes


def _bands(axes: Any, healthy: HealthyRange) -> None:
    """Put the bands behind the values, in a view that holds the limits of what is healthy."""
    edges = [edge for edge in healthy.healthy if math.isfinite(edge)]
    low, high = axes.get_ylim()
    margin = 0.1 * (max([high, *edges]) - min([low, *edges]))
    low, high = min([low, *(edge - margin for edge in edges)]), max([high, *(edge + margin for edge in edges)])
    axes.set_ylim(low, high)
    for bottom, top, grade in healthy.bands(low, high):
        label = f"healthy: {healthy.limits()}" if grade == "healthy" else None
        axes.axhspan(bottom, top, color=GRADE_COLORS[grade], alpha=0.17, linewidth=0, zorder=0, label=label)
    if edges:
        axes.legend(loc="best", fontsize="small")


def _color(axes: Any, rows: Mapping[str, Sequence[float]]) -> None:
    from matplotlib.colors import ListedColormap

    # A value that is not there has no colour.
    grades = [
        [float(GRADES.index(RANGES[name].grade(number))) if math.isfinite(number) else math.nan for number in numbers]
        for name, numbers in rows.items()
    ]
    colors = ListedColormap([GRADE_COLORS[grade] for grade in GRADES])
    axes.imshow(grades, cmap=colors, vmin=0, vmax=len(GRADES) - 1, aspect="auto", interpolation="nearest", alpha=0.55)
    for row in range(1, len(rows)):
        axes.axhline(row - 0.5, color="white", linewidth=2)


def _label(axes: Any, rows: Mapping[str, Sequence[float]]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_yticks(range(len(rows)), [RANGES[name].label for name in rows])
    last = axes.secondary_yaxis("right")
    last.set_yticks(range(len(rows)), [_last(numbers, RANGES[name]) for name, numbers in rows.items()])
    axes.set_title("green: healthy, amber: watch, red: act; at the right the last value", fontsize="small")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("Step")


def _last(numbers: Sequence[float], healthy: HealthyRange) -> str:
    number = f"{numbers[-1]:.4g}" if math.isfinite(numbers[-1]) else "-"
    return f"{number}  (healthy: {healthy.limits()})"
