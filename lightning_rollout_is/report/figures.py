"""The plots of a page: pictures that take the page's own text colour."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lightning_rollout_is.event_files import Curve
from lightning_rollout_is.plots.style import Plot
from lightning_rollout_is.report.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#010203"
"""Stands for the page's text colour until the picture is drawn; no curve has it."""
HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)


class Picture(NamedTuple):
    """One plot."""

    title: str
    svg: str


def pictures(runs: Sequence[Run], plots: Iterable[Plot]) -> list[Picture]:
    """One picture for each plot that any run has recorded something for, all runs in each.

    Args:
        runs: In the order of their colours.
        plots: Those that are wanted.

    Raises:
        ImportError: matplotlib is not installed.
    """
    curves = {run.name: run.mismatch for run in runs}
    wanted = [plot for plot in plots if any(map(plot.recorded, curves.values()))]
    return [Picture(plot.title, _drawn(plot, curves)) for plot in wanted]


def _drawn(plot: Plot, runs: dict[str, dict[str, Curve]]) -> str:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'lightning-rollout-is[plots]'") from error
    # Text stays text, which the browser sets, and the same run gives the same page.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": plot.title, "font.size": 10.5}):
        figure = Figure(figsize=(4.5, 3.0), layout="constrained")
        axes = figure.add_subplot()
        plot.draw(axes, runs)
        _ink(axes)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    return HEAD.sub("", svg.getvalue()).replace(INK, "currentColor")


def _ink(axes: Axes) -> None:
    from matplotlib.text import Text

    axes.tick_params(which="both", colors=INK)
    for spine in axes.spines.values():
        spine.set_edgecolor(INK)
    for text in axes.findobj(Text):
        text.set_color(INK)
    legend = axes.get_legend()
    if legend is not None:
        legend.get_frame().set_alpha(0.0)
