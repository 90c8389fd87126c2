"""What is said of health: limits of each metric, and the rules with their causes and remedies."""

from __future__ import annotations

import math

from extensions.configuration import meanings_of, settings
from extensions.markdown import code, marked, plain, table
from lightning_rollout_is.health.advice import ADVICE
from lightning_rollout_is.health.checks import JUDGEMENTS
from lightning_rollout_is.health.history import ORDER
from lightning_rollout_is.health.rules import Rules
from lightning_rollout_is.health.trends import ESS, EXACTLY_ONE, K3
from lightning_rollout_is.healthy_ranges import RANGES

RULES = tuple(dict.fromkeys(ORDER))
LOOKED_AT = {
    **{rule: needed for rule, (needed, _) in JUDGEMENTS.items()},
    "unchanged": tuple(EXACTLY_ONE),
    "falling_eff_sample_size": (ESS,),
    "jump": (K3,),
}
"""Rule to the metrics that it judges."""


def thresholds() -> str:
    """Every threshold of health."""
    return settings("lightning_rollout_is.health.Rules")


def symptoms() -> str:
    """One line a rule: what it looks at, and what is wrong when it holds."""
    rows = [[_sentence(marked(ADVICE[rule].meaning)), _names(LOOKED_AT[rule]), _link(rule)] for rule in RULES]
    return table(["what is wrong", "curves that show it", "rule"], rows)


def rules() -> str:
    """Every rule: when it holds, why, and what to do."""
    meanings = meanings_of(Rules)
    return "\n\n".join(
        f"({rule})=\n### `{rule}`\n\n{_sentence(marked(ADVICE[rule].meaning))}\n\n"
        f"**Where to look.** {_names(LOOKED_AT[rule])}. {meanings[rule]} Default: {code(getattr(Rules(), rule))}.\n\n"
        f"**Likely causes, the likeliest first.**\n\n{_numbered(ADVICE[rule].causes)}\n\n"
        f"**What to do.** {_sentence(marked(ADVICE[rule].remedy))}"
        for rule in RULES
    )


def limits(metric: str) -> str:
    """Healthy range of a metric, where it calls for action, and which rules judge it.

    Args:
        metric: Name without prefix.
    """
    parts = []
    if metric in RANGES:
        healthy_range = RANGES[metric]
        parts += [f"healthy: {healthy_range.limits()}"] if healthy_range.limits() else []
        parts += (
            [f"warning: {outside(healthy_range.warning)}"] if any(map(math.isfinite, healthy_range.warning)) else []
        )
    judges = [rule for rule in RULES if metric in LOOKED_AT[rule]]
    if judges:
        parts.append("judged by " + ", ".join(map(_link, judges)))
    return _sentence("; ".join(parts) or "no limit of its own")


def outside(interval: tuple[float, float]) -> str:
    """What is not in an interval, in words.

    Example:
        >>> outside((0.5, 2.0)), outside((-math.inf, 0.3))
        ('under 0.5 or over 2', 'over 0.3')
    """
    low, high = interval
    sides = [f"under {low:g}"] if math.isfinite(low) else []
    return " or ".join([*sides, *([f"over {high:g}"] if math.isfinite(high) else [])])


def _link(rule: str) -> str:
    return f"{{ref}}`{rule} <{rule}>`"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(code(name) for name in names)


def _numbered(causes: tuple[str, ...]) -> str:
    return "\n".join(f"{number}. {_sentence(marked(plain(cause)))}" for number, cause in enumerate(causes, start=1))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
