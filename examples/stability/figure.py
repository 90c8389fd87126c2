"""The figure of docs/stability.md."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lightning_rollout_is.plots.style import color_of

from .grid import ALGORITHMS, ENGINES, ON_POLICY, UNCORRECTED
from .results import EVALUATED, Results, Row, averaged, band, cells_of

CURVES = {
    EVALUATED: "reward of the policy",
    "k3": "K3, nats a token",
    "ess": "effective sample size, applied",
}
WINDOW = 16
"""Steps that a point of the lower curves is the mean of: the longest time for which an engine here is stale."""


def draw(results: Results, path: Path) -> None:
    """One column an engine, one row a curve: median over the seeds, and from the lowest to the highest of them.

    Args:
        results: All runs.
        path: Where to save.
    """
    cells = cells_of(results)
    engines = [engine for engine in ENGINES if engine != ON_POLICY and any(key[0] == engine for key in cells)]
    figure = Figure(figsize=(max(2 + 3.4 * len(engines), 9), 9), layout="constrained")
    panels = figure.subplots(len(CURVES), len(engines), sharex=True, sharey="row", squeeze=False)
    for column, engine in enumerate(engines):
        for axes, curve in zip(panels[:, column], CURVES, strict=True):
            _panel(axes, {name: runs for (of, name), runs in cells.items() if of == engine}, curve)
        control = band(cells.get((ON_POLICY, UNCORRECTED), []), EVALUATED)
        panels[0, column].plot(*_line(control), color="gray", linestyle="--", label="on policy (fp32)")
        panels[0, column].set_title(engine)
        panels[-1, column].set_xlabel("optimizer step")
    for axes, words in zip(panels[:, 0], CURVES.values(), strict=True):
        axes.set_ylabel(words)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=6, frameon=False)
    figure.savefig(path, dpi=90)


def _panel(axes: Axes, runs: dict[str, list[list[Row]]], curve: str) -> None:
    for number, algorithm in enumerate(ALGORITHMS):
        seeds = runs.get(algorithm, [])
        points = band(seeds if curve == EVALUATED else [averaged(rows, curve, WINDOW) for rows in seeds], curve)
        label = "no correction" if algorithm == UNCORRECTED else algorithm
        axes.plot(*_line(points), color=color_of(number), linewidth=1.3, label=label)
        steps, lows, _, highs = zip(*points, strict=True) if points else ((), (), (), ())
        axes.fill_between(steps, lows, highs, color=color_of(number), alpha=0.12, linewidth=0)
    if curve == "k3":
        axes.set_yscale("log")
        axes.set_ylim(1e-7, 3)
    else:
        axes.set_ylim(0, 1.02)


def _line(points: list[tuple[float, float, float, float]]) -> tuple[list[float], list[float]]:
    return [point[0] for point in points], [point[2] for point in points]
