"""What the text page of TensorBoard says, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_rollout_is.callbacks.settings import plain
from lightning_rollout_is.callbacks.standing import Standing, Value
from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.health import Finding
from lightning_rollout_is.healthy_ranges import RANGES

SIGNS = {"healthy": "healthy", "watch": "**to watch**", "unhealthy": "**UNHEALTHY**"}


def configuration_words(config: RolloutISConfig, settings: Mapping[str, Any]) -> str:
    """What the plugin does to a run, and the settings.

    Args:
        config: The algorithm block.
        settings: All of them, by dotted key.

    Example:
        >>> print(configuration_words(RolloutISConfig(2.0, rollout_is=True), {"algorithm.rollout_is": True}))
        The loss is **corrected**: importance weights multiply it, at level token, in mode truncate.
        <BLANKLINE>
        | setting | |
        |---|---|
        | algorithm.rollout_is | true |
    """
    rows = [f"| {key} | {_cell(str(plain(value)))} |" for key, value in settings.items()]
    return "\n".join([_what_it_does(config), "", "| setting | |", "|---|---|", *rows])


def verdict_words(standing: Standing, findings: Sequence[Finding], step: int) -> str:
    """What is wrong with a run, since when, and what to do; then every value beside its healthy range.

    Args:
        standing: Of its values.
        findings: What the rules of health say at this step.
        step: Of the last point.

    Example:
        >>> standing = Standing()
        >>> standing.observe({"mismatch_k3_kl": 1e-6}, 0)
        >>> print(verdict_words(standing, [], 0).splitlines()[0])
        ### Healthy at step 0
    """
    known = {finding.metric for finding in findings}
    outside = standing.outside
    said = [f"- **{finding.rule}**: {finding.described()}" for finding in findings]
    said += [_described(name, value) for name, value in outside.items() if not any(key.endswith(name) for key in known)]
    parts = [f"### {_headline(findings, outside)} at step {step}", "\n".join(said), _values(standing)]
    return "\n\n".join(part for part in parts if part)


def _headline(findings: Sequence[Finding], outside: Mapping[str, Value]) -> str:
    if findings or any(value.grade == "unhealthy" for value in outside.values()):
        return "Unhealthy"
    return "To watch" if outside else "Healthy"


def _described(name: str, value: Value) -> str:
    healthy = RANGES[name]
    advice = f" What to do: {healthy.remedy}." if healthy.remedy else ""
    return (
        f"- **{healthy.label}**: {value.number:.3g} at this step, and outside its healthy range ({healthy.limits()}) "
        f"since step {value.since}: {healthy.meaning}.{advice}"
    )


def _values(standing: Standing) -> str:
    rows = [
        f"| {_cell(RANGES[name].label)} | {value.number:.4g} | {RANGES[name].limits()} | {_sign(value)} |"
        for name, value in standing.values.items()
        if RANGES[name].limits()
    ]
    return "\n".join(["| value | at this step | healthy | |", "|---|---|---|---|", *rows])


def _sign(value: Value) -> str:
    return SIGNS[value.grade] if value.since is None else f"{SIGNS[value.grade]}; out of range since step {value.since}"


def _what_it_does(config: RolloutISConfig) -> str:
    how = f"at level {config.rollout_is_level}, in mode {config.rollout_is_mode}"
    if config.applied:
        return f"The loss is **corrected**: importance weights multiply it, {how}."
    return f"The mismatch is **only monitored**: weights are measured {how}, and do not touch the loss."


def _cell(text: str) -> str:
    """A bar would end the cell."""
    return text.replace("|", "&#124;").replace("\n", " ")
