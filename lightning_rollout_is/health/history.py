"""The health of a run from point to point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rollout_is.health.checks import JUDGEMENTS, Scalars, judge
from lightning_rollout_is.health.episodes import Episodes
from lightning_rollout_is.health.finding import Finding
from lightning_rollout_is.health.rules import Rules
from lightning_rollout_is.health.trends import Trends

ORDER = ("all_missing", "missing_fraction", "unchanged", "jump", "falling_eff_sample_size", *JUDGEMENTS)


class HealthHistory:
    """Judges one point after another: rules of one point, rules over a window, and since when they hold.

    Args:
        rules: The thresholds; ``None`` for the defaults.
        prefix: What the names of the statistics begin with.

    Example:
        >>> history = HealthHistory(Rules(recovery=1))
        >>> for step, kl in enumerate([0.0, 0.2, 0.3]):
        ...     findings = history.observe(step, {"mismatch/mismatch_kl": kl})
        >>> findings[0].rule, findings[0].value, findings[0].since
        ('kl', 0.3, 1)
        >>> history.begun, history.observe(3, {"mismatch/mismatch_kl": 0.0}), history.ended
        ([], [], {'kl': 1})
    """

    begun: list[Finding]
    """Findings whose episode began at the last point."""
    ended: dict[str, int]
    """Rules whose episode ended at the last point, and the step at which it had begun."""

    def __init__(self, rules: Rules | None = None, prefix: str = "mismatch/") -> None:
        self.rules = rules or Rules()
        self.prefix = prefix
        self.begun, self.ended = [], {}
        self._trends = Trends(self.rules)
        self._episodes = Episodes(self.rules.patience, self.rules.recovery)

    def observe(self, step: int, scalars: Mapping[str, float]) -> list[Finding]:
        """Judge the next point.

        A rule whose values are absent or not finite neither holds nor ends.

        Args:
            step: The x of the point.
            scalars: The logged values by name; others than the statistics are left alone.

        Returns:
            All that holds at this point, what may explain the rest first.
        """
        values = Scalars(scalars, self.prefix)
        judged = {**self._trends.judge(step, values), **judge(values, self.rules)}
        findings, self.begun, self.ended = [], [], {}
        for rule in sorted(judged, key=ORDER.index):
            broken = judged[rule]
            if broken is None:
                self._end(rule)
                continue
            begins = self._episodes.holds(rule, step if broken.since is None else broken.since)
            findings.append(broken.finding(rule, self.prefix, self._episodes.since(rule)))
            if begins:
                self.begun.append(findings[-1])
        return findings

    @property
    def open(self) -> dict[str, int]:
        """Rules whose episode is not over, and the step at which it began; some may not hold at the last point."""
        return self._episodes.open

    def _end(self, rule: str) -> None:
        first = self._episodes.fails(rule)
        if first is not None:
            self.ended[rule] = first

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers, as plain numbers."""
        return {"episodes": self._episodes.state_dict(), "trends": self._trends.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._episodes.load_state_dict(state["episodes"])
        self._trends.load_state_dict(state["trends"])
