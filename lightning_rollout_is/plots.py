"""Series of mismatch statistics as one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """One plot of the figure."""

    title: str
    curves: Mapping[str, str]
    """Metric name without prefix, and its label."""
    guides: Mapping[float, str] = {}
    """Horizontal lines: value, and label."""
    fallback: str = ""
    """What to write where no curve exists."""


PANELS = (
    Panel("Mean importance weight", {"rollout_is_mean": "mean"}, {1.0: "ideal", 0.5: "warning", 2.0: "warning"}),
    Panel("Effective sample size", {"rollout_is_eff_sample_size": "ESS"}, {0.5: "healthy above", 0.3: "warning below"}),
    Panel("Vetoed sequences", {"rollout_is_veto_fraction": "fraction"}, {0.1: "warning above"}),
    Panel("KL(rollout || training)", {"mismatch_kl": "k1", "mismatch_k3_kl": "k3"}, {0.0: "no mismatch"}),
    Panel("Perplexity, training / rollout", {"mismatch_ppl_ratio": "ratio"}, {1.0: "no mismatch"}),
    Panel(
        "Masked by the bounds",
        {"rollout_is_masked_fraction": "tokens", "rollout_is_seq_masked_fraction": "sequences"},
        {0.3: "warning above"},
        fallback="mode: truncate\n(nothing is masked)",
    ),
)


def plot_rollout_is(
    history: Mapping[str, Sequence[float]],
    path: str | Path | None = None,
    *,
    prefix: str = "mismatch/",
    steps: Sequence[float] | None = None,
) -> Figure:
    """Draw the six curves that tell most, two rows of three.

    Args:
        history: Metric name, with its prefix, to one value a step. Names that are absent leave their curve out.
        path: Where to save the figure; the suffix chooses the format.
        prefix: What the names in ``history`` begin with.
        steps: The x of each value; ``None`` counts from 0.

    Returns:
        The matplotlib ``Figure``; it belongs to no global state and needs no closing.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: No name in ``history`` belongs to any panel.

    Example:
        >>> figure = plot_rollout_is({"mismatch/rollout_is_mean": [1.0, 1.1], "mismatch/mismatch_kl": [0.0, 0.01]})
        >>> len(figure.axes)
        6
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'lightning-rollout-is[plots]'") from error
    if not any(prefix + name in history for panel in PANELS for name in panel.curves):
        raise ValueError(
            f"history holds {sorted(history)}, none of which is drawn; give names such as '{prefix}rollout_is_mean'"
        )
    figure = Figure(figsize=(15, 8), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        _draw(axes, panel, history, prefix, steps)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _draw(
    axes: Axes, panel: Panel, history: Mapping[str, Sequence[float]], prefix: str, steps: Sequence[float] | None
) -> None:
    axes.set_title(panel.title)
    series = {label: history[prefix + name] for name, label in panel.curves.items() if prefix + name in history}
    if not series:
        axes.set_axis_off()
        axes.text(0.5, 0.5, panel.fallback or "not recorded", ha="center", va="center", color="gray")
        return
    for label, values in series.items():
        axes.plot(range(len(values)) if steps is None else steps, values, label=label)
    for value, label in panel.guides.items():
        color = "tab:red" if "warning" in label else "tab:gray"
        axes.axhline(value, linestyle="--", linewidth=1, color=color, label=label)
    axes.set_xlabel("optimizer step")
    axes.legend(fontsize="small")
