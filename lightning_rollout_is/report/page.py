"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import NamedTuple

from lightning_rollout_is.healthy_ranges import RANGES
from lightning_rollout_is.plots import COLORS, DETAILS, PANELS
from lightning_rollout_is.plots.style import Plot
from lightning_rollout_is.report.configuration import differences, setting
from lightning_rollout_is.report.figures import Picture, pictures
from lightning_rollout_is.report.problem import Verdict
from lightning_rollout_is.report.runs import Run
from lightning_rollout_is.report.values import Cell, all_values, summary, telling_values

MARKS = {"healthy": "✓", "watch": "!", "unhealthy": "✕"}
"""Told apart without colour."""
SETTING = re.compile(
    r"([a-z_]+(?:\.[a-z_]+)+(?:: (?:true|false|null|[A-Za-z_]+[0-9]*(?=[\s,;)]|$)|[0-9.e-]*[0-9]))?|[a-z_]+=[a-z_0-9]+)"
)
"""A key of the configuration, with its value where one is named."""
GRAVITY = ("unhealthy", "watch", "healthy")
FACTS = {
    "rollout": "rollout.name",
    "level": "rollout_is_level",
    "mode": "rollout_is_mode",
    "threshold": "rollout_is_threshold",
    "corrects the loss": "rollout_is",
}
"""What tells most of a configuration: label, and end of the key."""

MEASURES = {
    "K3": "mismatch_k3_kl",
    "effective sample size": "rollout_is_eff_sample_size",
    "largest weight": "rollout_is_max",
}
"""What shows best how far two policies are apart: label, and metric without prefix."""


class Judged(NamedTuple):
    """A run and what to think of it."""

    run: Run
    verdict: Verdict


def gravest_first(judged: Sequence[Judged]) -> list[Judged]:
    """The order in which a reader wants runs; those of one grade as they came."""
    return sorted(judged, key=lambda one: GRAVITY.index(one.verdict.grade))


def page(judged: Sequence[Judged], unread: Sequence[str], version: str) -> str:
    """The whole page.

    Args:
        judged: The runs, in the order in which they are shown.
        unread: Messages on what was asked for and could not be read.
        version: Of this package.
    """
    from jinja2 import Environment, StrictUndefined

    # Names of runs, settings and messages come from files of anyone's: the template engine escapes each of them.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files(__package__).joinpath("page.html.jinja").read_text("utf-8"))
    runs = [one.run for one in judged]
    drawn, without_pictures = _pictures_or_reason(runs, PANELS)
    details, _ = _pictures_or_reason(runs, DETAILS)
    return template.render(
        judged=judged,
        pieces=pieces,
        colors=[COLORS[number % len(COLORS)] for number in range(len(runs))],
        marks=MARKS,
        count={grade: sum(one.verdict.grade == grade for one in judged) for grade in GRAVITY},
        facts=[facts_of(run) for run in runs],
        at_worst=[at_worst(run) for run in runs],
        telling=telling_values(runs),
        differences=differences([run.configuration for run in runs]),
        pictures=drawn,
        details=details,
        without_pictures=without_pictures,
        values=[all_values(run) for run in runs],
        unread=unread,
        version=version,
    )


def facts_of(run: Run) -> dict[str, str]:
    """The few settings that tell most of a run; those that are known."""
    known = {label: setting(run.configuration, key) for label, key in FACTS.items()}
    return {label: value for label, value in known.items() if value}


def at_worst(run: Run) -> dict[str, Cell]:
    """How far a run has been from agreement in the statistics that tell it best; those that it has."""
    summaries = {
        label: summary(run.mismatch[name], RANGES[name]) for label, name in MEASURES.items() if name in run.mismatch
    }
    return {label: three.worst for label, three in summaries.items() if three is not None}


def pieces(text: str) -> list[tuple[str, bool]]:
    """A text in pieces, and whether each is something to set.

    Example:
        >>> pieces("set algorithm.rollout_is: true or rollout=fp32")
        [('set ', False), ('algorithm.rollout_is: true', True), (' or ', False), ('rollout=fp32', True)]
    """
    split = SETTING.split(text)
    return [(piece, place % 2 == 1) for place, piece in enumerate(split) if piece]


def _pictures_or_reason(runs: Sequence[Run], plots: Iterable[Plot]) -> tuple[list[Picture], str]:
    try:
        return pictures(runs, plots), ""
    except ImportError as error:
        return [], str(error)
