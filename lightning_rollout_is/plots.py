"""Series of mismatch statistics as one figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lightning_rollout_is.event_files import Curve, read_event_log
from lightning_rollout_is.healthy_ranges import RANGES, HealthyRange

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS_DRAWN = 1000
"""More points than that are thinned out, since no screen shows them."""
COLORS = ("#2f6fde", "#c0268f", "#0f8f8f", "#8a5a00", "#7a52d1", "#6b7280")
"""None is a colour of the bands, and each can be seen on white and on black."""
STYLES = ("-", "--", ":")
BANDS = {"healthy": "#2e9e4f", "watch": "#e0a000", "unhealthy": "#d03030"}
FLOOR = 1e-16
"""Where a value of 0 lies on a logarithmic axis."""


class Panel(NamedTuple):
    """One plot of the figure."""

    title: str
    curves: Mapping[str, str]
    """Metric name without prefix, and its label. The first has the bands."""
    view: tuple[float, float]
    """What the y axis shows at least: noise far inside the healthy range shall not fill the plot."""
    ideal: float | None = None
    """Value where both policies agree."""
    logarithmic: bool = False
    fallback: str = ""
    """What to write where no curve exists."""

    @property
    def healthy_range(self) -> HealthyRange | None:
        """Of the first curve."""
        return RANGES.get(next(iter(self.curves)))


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


def plot_rollout_is(
    history: Mapping[str, Sequence[float]] | str | Path,
    path: str | Path | None = None,
    *,
    prefix: str = "mismatch/",
    steps: Sequence[float] | None = None,
) -> Figure:
    """Draw the eight plots that tell most, two rows of four, over bands: healthy green, doubtful amber, sick red.

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
    if not any(prefix + name in curves for panel in PANELS for name in panel.curves):
        raise ValueError(
            f"history holds {sorted(curves)}, none of which is drawn; give names such as '{prefix}rollout_is_mean'"
        )
    figure = Figure(figsize=(19, 8), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 4).flat, PANELS, strict=True):
        draw_panel(axes, panel, {"": _without_prefix(curves, prefix)})
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def draw_panel(axes: Axes, panel: Panel, runs: Mapping[str, Mapping[str, Curve]]) -> None:
    """Draw one plot of one run or several.

    Args:
        axes: Where.
        panel: What.
        runs: Label of a run to its curves, by metric name without prefix. Of several runs only the first
            curve is drawn, each in a colour of its own; of one run all of them are.
    """
    axes.set_title(panel.title)
    names = list(panel.curves) if len(runs) == 1 else list(panel.curves)[:1]
    drawn = [
        (run, position, name, curves[name])
        for run, curves in enumerate(runs.values())
        for position, name in enumerate(names)
        if name in curves and len(curves[name].steps) > 0
    ]
    if not drawn:
        axes.set_axis_off()
        axes.text(0.5, 0.5, panel.fallback or "not recorded", ha="center", va="center", color="gray")
        return
    for run, position, name, curve in drawn:
        shown = thinned(curve)
        number = run + position  # one of them is 0
        axes.plot(
            shown.steps,
            [max(value, FLOOR) for value in shown.values] if panel.logarithmic else shown.values,
            label=panel.curves[name],
            color=COLORS[number % len(COLORS)],
            linestyle=STYLES[number // len(COLORS) % len(STYLES)],
            marker="o" if len(shown.steps) == 1 else "",
        )
    _frame(axes, panel, [curve for *_, curve in drawn])
    if len(runs) == 1:
        axes.legend(fontsize="small")


def thinned(curve: Curve, limit: int = POINTS_DRAWN) -> Curve:
    """The smallest and the largest value of each stretch, so that no peak is lost.

    Args:
        curve: Any number of points.
        limit: How many may remain.

    Example:
        >>> thinned(Curve(range(8), [0.0, 1.0, 0.0, 9.0, 0.0, -5.0, 1.0, 1.0]), limit=4)
        Curve(steps=[0, 3, 5, 6], values=[0.0, 9.0, -5.0, 1.0])
    """
    length = len(curve.steps)
    if length <= limit:
        return curve
    stretches = limit // 2
    kept = []
    for stretch in range(stretches):
        places = range(stretch * length // stretches, (stretch + 1) * length // stretches)
        finite = [place for place in places if math.isfinite(curve.values[place])] or places
        kept += sorted({min(finite, key=curve.values.__getitem__), max(finite, key=curve.values.__getitem__)})
    return Curve([curve.steps[place] for place in kept], [curve.values[place] for place in kept])


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


def _frame(axes: Axes, panel: Panel, curves: Sequence[Curve]) -> None:
    """Scale the y axis, and put the bands and the ideal value behind the curves."""
    if panel.logarithmic:
        axes.set_yscale("log")
    low, high = _view(panel, curves)
    axes.set_ylim(low, high)
    for bottom, top, grade in _bands(panel.healthy_range, low, high):
        axes.axhspan(bottom, top, color=BANDS[grade], alpha=0.17, linewidth=0, zorder=0)
    if panel.ideal is not None:
        axes.axhline(panel.ideal, linestyle="--", linewidth=1, color="gray", zorder=1)
    axes.set_xlabel("optimizer step")


def _view(panel: Panel, curves: Sequence[Curve]) -> tuple[float, float]:
    values = [value for curve in curves for value in curve.values if math.isfinite(value)]
    low, high = min([panel.view[0], *values]), max([panel.view[1], *values])
    if panel.logarithmic:
        return max(low, FLOOR) / 2, high * 2
    margin = 0.03 * (high - low)
    return (low - margin if low < panel.view[0] else low), (high + margin if high > panel.view[1] else high)


def _bands(healthy_range: HealthyRange | None, lowest: float, highest: float) -> Iterator[tuple[float, float, str]]:
    """Bottom, top and grade of each band that can be seen between two heights."""
    if healthy_range is None or not any(map(math.isfinite, healthy_range.healthy + healthy_range.warning)):
        return
    (low, high), (least, most) = healthy_range.healthy, healthy_range.warning
    edges = [min(max(edge, lowest), highest) for edge in (lowest, least, low, high, most, highest)]
    grades = ["unhealthy", "watch", "healthy", "watch", "unhealthy"]
    for bottom, top, grade in zip(edges, edges[1:], grades, strict=False):
        if bottom < top:
            yield bottom, top, grade
