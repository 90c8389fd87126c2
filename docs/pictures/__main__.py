"""Train the demo sound and sick, and draw the pictures of ``docs/reading_the_curves.md`` from what the runs logged.

About fifteen minutes on two cores, from the repository's root::

    make pictures

Runs lie in ``runs/pictures``; one that is whole is not made again. ``runs.csv`` beside the pictures holds the figures
that the page quotes.
"""

import csv
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import NamedTuple

from matplotlib.figure import Figure
from rich.console import Console

from lightning_rollout_is.event_files import EventLog, read_event_log
from lightning_rollout_is.health import HealthHistory
from lightning_rollout_is.plots import COLORS, PLOTS
from lightning_rollout_is.plots.fan import Fan
from lightning_rollout_is.plots.panel import Panel
from lightning_rollout_is.plots.style import Plot

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNS_FOLDER = ROOT / "runs" / "pictures"
STEPS = 80
COMMON = (f"--config-dir={HERE / 'conf'}", "callbacks=health", f"trainer.max_steps={STEPS}")

RUNS = {
    "fp32": ("rollout=fp32",),
    "int4": ("rollout=int4",),
    "stale": ("rollout=stale",),
    "int4, sequence level": ("rollout=int4", "algorithm=sequence_truncate"),
    "int4, geometric level": ("rollout=int4", "algorithm=geometric_mask"),
    "int4, token mask": ("rollout=int4", "algorithm=token_mask"),
    "shifted by one token": ("rollout=shifted",),
    "hotter than told": ("rollout=hot",),
    "before temperature": ("rollout=raw", "actor_rollout_ref.rollout.temperature=0.7"),
    "first token missing": ("rollout=missing",),
    "int8": ("rollout=int8",),
    "int8, sequence level": ("rollout=int8", "algorithm=sequence_truncate"),
    "int8, geometric level": ("rollout=int8", "algorithm=geometric_mask"),
}
"""Name of a run to its Hydra overrides."""

OF = {next(iter(plot.curves)): plot for plot in PLOTS if isinstance(plot, Panel)}
FAN = Fan()
REWARD = Panel("Reward", {"reward": "reward"}, (0.0, 1.0))
MISSING = Panel("Missing log-probs", {"rollout_is_missing_fraction": "fraction"}, (-0.01, 0.2), ideal=0.0)


class Picture(NamedTuple):
    """What is beside what."""

    panels: tuple[Plot, Plot, Plot, Plot]
    runs: tuple[str, ...]


PICTURES = {
    "engines": Picture(
        (OF["mismatch_k3_kl"], OF["rollout_is_eff_sample_size"], OF["rollout_is_max"], REWARD),
        ("fp32", "int4", "stale"),
    ),
    "levels": Picture(
        (
            OF["rollout_is_eff_sample_size"],
            OF["rollout_is_applied_eff_sample_size"],
            OF["rollout_is_masked_fraction"],
            REWARD,
        ),
        ("int4", "int4, sequence level", "int4, geometric level", "int4, token mask"),
    ),
    "shifted": Picture(
        (OF["rollout_is_mean"], OF["mismatch_k3_kl"], OF["mismatch_kl"], REWARD), ("fp32", "shifted by one token")
    ),
    "temperature": Picture(
        (OF["mismatch_kl"], OF["mismatch_k3_kl"], OF["rollout_is_mean"], FAN),
        ("fp32", "hotter than told", "before temperature"),
    ),
    "missing": Picture(
        (MISSING, OF["mismatch_k3_kl"], OF["rollout_is_eff_sample_size"], REWARD), ("fp32", "first token missing")
    ),
}
"""Name of a file to what it shows."""

QUOTED = {
    "mismatch/mismatch_k3_kl": "K3",
    "mismatch/mismatch_kl": "KL",
    "mismatch/rollout_is_eff_sample_size": "ESS",
    "mismatch/rollout_is_applied_eff_sample_size": "applied ESS",
    "mismatch/rollout_is_mean": "mean weight",
    "mismatch/rollout_is_max": "largest weight",
    "mismatch/rollout_is_masked_fraction": "masked",
    "mismatch/rollout_is_missing_fraction": "missing",
}


def main() -> None:
    """Train what is not trained yet, then draw and write everything."""
    logs = {name: trained(name) for name in RUNS}
    for file, picture in PICTURES.items():
        draw(picture, logs).savefig(HERE / f"{file}.png", dpi=85)
    rows = [[name, " ".join(RUNS[name]), *quoted(log)] for name, log in logs.items()]
    with (HERE / "runs.csv").open("w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(["run", "overrides", *QUOTED.values(), "reward", "rules that held"])
        writer.writerows(rows)


def trained(name: str) -> EventLog:
    """What a run logged, after training it if need be."""
    folder = RUNS_FOLDER / name.replace(", ", "_").replace(" ", "_")
    events = folder / "tensorboard"
    log = read_event_log(events) if any(events.glob("*tfevents*")) else None
    if log is None or len(log.curves["reward"].steps) < STEPS:
        Console().rule(name)
        search_path = [str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")]
        subprocess.run(
            [sys.executable, "examples/train.py", *COMMON, *RUNS[name], f"hydra.run.dir={folder}"],
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search_path))},
        )
        log = read_event_log(events)
    return log


def draw(picture: Picture, logs: dict[str, EventLog]) -> Figure:
    """Four panels, each run in the same colour in all of them."""
    figure = Figure(figsize=(10, 6.2), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 2).flat, picture.panels, strict=True):
        runs = {
            name: {tag.removeprefix("mismatch/"): curve for tag, curve in logs[name].curves.items()}
            for name in picture.runs
        }
        panel.draw(axes, runs)
    labels = [*picture.runs]
    lines = [figure.axes[0].plot([], [], color=COLORS[number])[0] for number in range(len(labels))]
    figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def quoted(log: EventLog) -> list[str]:
    """Medians over the run, the reward at its end, and what health says of it."""
    medians = [f"{median(log.curves[tag].values):.3g}" if tag in log.curves else "-" for tag in QUOTED]
    reward = log.curves["reward"].values[-10:]
    return [*medians, f"{sum(reward) / len(reward):.2f}", rules_of(log)]


def rules_of(log: EventLog) -> str:
    """Each rule of health and the share of steps at which it held."""
    history, held = HealthHistory(), Counter[str]()
    points: dict[int, dict[str, float]] = {step: {} for step in log.curves["mismatch/mismatch_kl"].steps}
    for tag, curve in log.curves.items():
        for step, value in zip(curve.steps, curve.values, strict=True):
            points.get(step, {})[tag] = value
    for step, scalars in points.items():
        held.update(finding.rule for finding in history.observe(step, scalars))
    return ", ".join(f"{rule} ({count / len(points):.0%})" for rule, count in sorted(held.items())) or "none"


if __name__ == "__main__":
    main()
