"""The figure: what to draw where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_rollout_is.event_files import Curve, read_event_log
from lightning_rollout_is.plots.fan import Fan
from lightning_rollout_is.plots.groups import Groups
from lightning_rollout_is.plots.panel import Panel
from lightning_rollout_is.plots.profile import Profile
from lightning_rollout_is.plots.style import Plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 4
PANELS = (
    Panel("K3 (log scale)", {"mismatch_k3_kl": "k3"}, (1e-6, 1e-2), logarithmic=True),
    Panel("KL(rollout || training)", {"mismatch_kl": "k1", "mismatch_k3_kl": "k3"}, (-0.004, 0.004), ideal=0.0),
    Panel("Effective sample size", {"rollout_is_eff_sample_size": "ESS"}, (0.0, 1.05), ideal=1.0),
    Panel("Mean importance weight", {"rollout_is_mean": "mean"}, (0.75, 1.35), ideal=1.0),
    Panel("Largest importance weight", {"rollout_is_max": "max"}, (0.9, 2.1), ideal=1.0),
    Panel("Perplexity, training / rollout", {"mismatch_ppl_ratio": "ratio"}, (0.95, 1.05), ideal=1.0),
    Panel("Vetoed sequences", {"rollout_is_veto_fraction": "fraction"}, (-0.005, 0.06), ideal=0.0),
    Panel(
        "Masked by the bounds",
        {"rollout_is_masked_fraction": "tokens", "rollout_is_seq_masked_fraction": "sequences"},
        (-0.01, 0.12),
        ideal=0.0,
        fallback="mode: truncate\n(nothing is masked)",
    ),
)
"""Drawn whether recorded or not, so that every figure begins alike."""

DETAILS: tuple[Plot, ...] = (
    Fan(),
    Profile(),
    Panel(
        "Weights that multiply the loss",
        {"rollout_is_applied_eff_sample_size": "ESS", "rollout_is_applied_mean": "mean"},
        (0.0, 1.1),
        ideal=1.0,
    ),
    Panel(
        "Chi-square (log scale)",
        {"mismatch_chi2_token": "tokens", "mismatch_chi2_seq": "sequences"},
        (-0.01, 2.0),
        ideal=0.0,
        logarithmic=True,
        linear_within=0.01,
    ),
    Panel(
        "Confident disagreement",
        {"mismatch_confident_disagreement_fraction": "tokens"},
        (-1e-4, 1.2e-3),
        ideal=0.0,
    ),
    Panel(
        "|p - q| of the sampled tokens",
        {"mismatch_probs_diff_mean": "mean", "mismatch_probs_diff_max": "largest"},
        (-0.002, 0.05),
        ideal=0.0,
    ),
    *(Groups(panel) for panel in PANELS[:4]),
)
"""Drawn where they are recorded."""
PLOTS: tuple[Plot, ...] = (*PANELS, *DETAILS)


def plot_rollout_is(
    history: Mapping[str, Sequence[float]] | str | Path,
    path: str | Path | None = None,
    *,
    prefix: str = "mismatch/",
    steps: Sequence[float] | None = None,
) -> Figure:
    """Draw the eight plots that tell most, two rows of four, over bands: healthy green, doubtful amber, sick red.

    Standard errors, where they are recorded, are bands of 95% around KL and mean weight. Below follow, four a row, the
    plots of whatever else is recorded: percentiles of the log ratio, its size along the response, effective sample size
    and mean of the applied weights, chi-square, confident disagreement, differences of probability, and K3, KL,
    effective sample size and mean weight by group.

    Args:
        history: Metric name, with its prefix, to one value a step. Names that are absent leave their curve out. Or the
            folder of an event file, such as ``trainer.logger.log_dir``.
        path: Where to save the figure; the suffix chooses the format.
        prefix: What the names in ``history`` begin with.
        steps: The x of each value; ``None`` counts from 0. A folder has steps of its own.

    Returns:
        The matplotlib ``Figure``; it belongs to no global state and needs no closing.

    Raises:
        ImportError: matplotlib is not installed.
        FileNotFoundError: The folder has no event file.
        ValueError: No name in ``history`` belongs to any panel, or steps were given along with a folder.

    Example:
        >>> figure = plot_rollout_is({"mismatch/rollout_is_mean": [1.0, 1.1], "mismatch/mismatch_kl": [0.0, 0.01]})
        >>> len(figure.axes)
        8
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'lightning-rollout-is[plots]'") from error
    curves = _curves_of(history, steps)
    own = _without_prefix(curves, prefix)
    drawn = [*PANELS, *(plot for plot in DETAILS if plot.recorded(own))]
    if not any(plot.recorded(own) for plot in drawn):
        raise ValueError(
            f"history holds {sorted(curves)}, none of which is drawn; give names such as '{prefix}rollout_is_mean'"
        )
    rows = math.ceil(len(drawn) / COLUMNS)
    figure = Figure(figsize=(19, 4 * rows), layout="constrained")
    places = list(figure.subplots(rows, COLUMNS).flat)
    for axes, plot in zip(places, drawn, strict=False):
        plot.draw(axes, {"": own})
    for axes in places[len(drawn) :]:
        axes.remove()
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _curves_of(
    history: Mapping[str, Sequence[float]] | str | Path, steps: Sequence[float] | None
) -> Mapping[str, Curve]:
    if isinstance(history, Mapping):
        # A step may be any number that a user counts by: tokens in billions, say.
        return {
            name: Curve(range(len(values)) if steps is None else steps, values)  # type: ignore[arg-type]
            for name, values in history.items()
        }
    if steps is not None:
        raise ValueError(f"steps were given along with the folder {history}, whose points have steps; leave them out")
    return read_event_log(history).curves


def _without_prefix(curves: Mapping[str, Curve], prefix: str) -> dict[str, Curve]:
    return {name.removeprefix(prefix): curve for name, curve in curves.items() if name.startswith(prefix)}
