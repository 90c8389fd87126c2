"""One word for a run, and the reasons for it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lightning_rollout_is.event_files import Curve, finite_points
from lightning_rollout_is.health import Finding, HealthHistory, Rules
from lightning_rollout_is.health.advice import ADVICE
from lightning_rollout_is.health.history import ORDER
from lightning_rollout_is.healthy_ranges import RANGES, HealthyRange
from lightning_rollout_is.report.problem import Problem, Verdict
from lightning_rollout_is.report.runs import Run

LASTING_SHARE = 0.1
"""What holds at fewer points than that, and has ended, is an incident and not the state of a run."""
RECENT = 10
"""Points at the end whose median is where a run has got to."""
GAP = 3
"""Points without it after which a rule that comes and goes counts as over."""

RULE_OF = {
    "mismatch_k3_kl": "kl",
    "mismatch_kl": "kl",
    "rollout_is_eff_sample_size": "eff_sample_size",
    "rollout_is_applied_eff_sample_size": "applied_eff_sample_size",
    "rollout_is_std": "std",
    "rollout_is_veto_fraction": "veto_fraction",
    "rollout_is_masked_fraction": "masked_fraction",
    "rollout_is_missing_fraction": "missing_fraction",
    "mismatch_confident_disagreement_fraction": "confident_disagreement",
}
"""Whose causes are those of a value that is not healthy yet breaks no rule."""


def judge(run: Run, rules: Rules | None = None) -> Verdict:
    """Replay a run through the rules of health, and look for values outside their healthy ranges.

    A run is unhealthy if a rule holds at its end (at the last point, or at half of the last ten), or held at a tenth of
    its points; it is to be watched if a rule held at some point, or a value is outside its healthy range that often or
    at the end; otherwise it is healthy.

    Args:
        run: From its event files.
        rules: Thresholds; ``None`` for the default ones.
    """
    found = list(_from_rules(run, rules or Rules()))
    # The groups of a statistic come after the whole: what is wrong with all of it is not told of each part.
    for metric, curve in sorted(run.mismatch.items(), key=lambda named: "/" in named[0]):
        found += _not_finite(metric, curve)
        whole = metric.partition("/")[0]
        # Nor does an incident that is over say all of a value.
        told = {problem.metric for problem in found if problem.lasting or problem.grade == "unhealthy"}
        if whole in RANGES and whole not in told:
            found += _outside(metric, finite_points(curve), RANGES[whole])
    found.sort(key=lambda problem: (problem.grade != "unhealthy", not problem.lasting))
    return Verdict(found[0].grade if found else "healthy", tuple(found))


def points_of(curves: Mapping[str, Curve]) -> Iterator[tuple[int, dict[str, float]]]:
    """Each step in order, with the values that lie there.

    Example:
        >>> list(points_of({"a": Curve([0, 2], [1.0, 2.0]), "b": Curve([2], [5.0])}))
        [(0, {'a': 1.0}), (2, {'a': 2.0, 'b': 5.0})]
    """
    place = dict.fromkeys(curves, 0)
    for step in sorted({step for curve in curves.values() for step in curve.steps}):
        values = {}
        for name, curve in curves.items():
            at = place[name]
            if at < len(curve.steps) and curve.steps[at] == step:
                values[name] = curve.values[at]
                place[name] = at + 1
        yield step, values


@dataclass
class _Held:
    """What is known of one rule while a run is replayed."""

    first: Finding
    worst: Finding
    places: list[int]
    """At which of the points it held, in order."""

    def add(self, finding: Finding, place: int) -> None:
        self.places.append(place)
        if abs(finding.value - finding.threshold) > abs(self.worst.value - self.worst.threshold):
            self.worst = finding

    def lasts(self, total: int) -> bool:
        """Whether it holds at the last of so many points, or comes and goes: a point without it is not its end."""
        recent = sum(place >= total - RECENT for place in self.places)
        comes_and_goes = 2 * recent >= min(RECENT, total) and self.places[-1] >= total - GAP
        return self.places[-1] == total - 1 or comes_and_goes


def _from_rules(run: Run, rules: Rules) -> Iterator[Problem]:
    history, total = HealthHistory(rules, run.prefix), 0
    held: dict[str, _Held] = {}
    curves = {run.prefix + name: finite_points(curve) for name, curve in run.mismatch.items()}
    for total, (step, scalars) in enumerate(points_of(curves), start=1):
        for finding in history.observe(step, scalars):
            held.setdefault(finding.rule, _Held(finding, finding, [])).add(finding, total - 1)
    lasting = {rule for rule, known in held.items() if known.lasts(total)}
    for rule in sorted(held, key=ORDER.index):
        known, share = held[rule], len(held[rule].places) / total
        first = known.first.since
        yield Problem(
            grade="unhealthy" if rule in lasting or share >= LASTING_SHARE else "watch",
            metric=known.worst.metric.removeprefix(run.prefix),
            first=first,
            since=history.open.get(rule, first) if rule in lasting else first,
            lasting=rule in lasting,
            share=share,
            message=known.worst.message,
            numbers=f"{known.worst.metric} {known.worst.value:.3g} at worst, threshold {known.worst.threshold:.3g}",
            causes=known.worst.causes,
            remedy=known.worst.remedy,
        )


def _outside(metric: str, curve: Curve, healthy: HealthyRange) -> Iterator[Problem]:
    """A value that no rule speaks of, and that is not as it should be."""
    out = [step for step, value in zip(curve.steps, curve.values, strict=True) if healthy.grade(value) != "healthy"]
    if not out:
        return
    share, typical = len(out) / len(curve.values), statistics.median(curve.values[-RECENT:])
    lasting = healthy.grade(typical) != "healthy"
    if lasting or share >= LASTING_SHARE:
        worst = max(curve.values, key=healthy.distance)
        whole, _, group = metric.partition("/")
        message = f"in the group {group}, {healthy.meaning}" if group else healthy.meaning
        numbers = f"{healthy.label}: {typical:.3g} at the end, {worst:.3g} at worst; healthy: {healthy.limits()}"
        causes = ADVICE[RULE_OF[whole]].causes if whole in RULE_OF else ()
        yield Problem("watch", metric, out[0], out[0], lasting, share, message, numbers, causes, healthy.remedy)


def _not_finite(metric: str, curve: Curve) -> Iterator[Problem]:
    lost = sorted(set(curve.steps) - set(finite_points(curve).steps))
    if lost:
        yield Problem(
            grade="watch",
            metric=metric,
            first=lost[0],
            since=lost[0],
            lasting=lost[-1] == curve.steps[-1],
            share=len(lost) / len(curve.steps),
            message=f"{metric} is not a finite number",
            numbers=f"{len(lost)} of {len(curve.steps)} points",
            causes=("NaN or infinite log-probs on either side",),
            remedy="look for NaN in the log-probs of the engine and of the trainer",
        )
