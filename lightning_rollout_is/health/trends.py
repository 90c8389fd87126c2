"""Rules over a window of points."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from lightning_rollout_is.health.checks import Broken
from lightning_rollout_is.health.rules import Rules

ESS = "rollout_is_eff_sample_size"
K3 = "mismatch_k3_kl"
EXACTLY_ONE = {"rollout_is_min": 1.0, "rollout_is_max": 1.0, "mismatch_kl": 0.0, K3: 0.0}
"""What every point says if each log ratio is 0."""


class Trends:
    """Remembers as much of the past as the rules need, and judges each point by it.

    Args:
        rules: The thresholds.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._ess: deque[float] = deque(maxlen=rules.window)
        self._k3: deque[float] = deque(maxlen=rules.window)
        self._ones = 0
        self._ones_since = 0

    def judge(self, step: int, values: Mapping[str, float]) -> dict[str, Broken | None]:
        """Each rule that this point can answer, and how it is broken, or ``None``; the point is remembered.

        Args:
            step: The x of the point.
            values: Finite values by their names without prefix.
        """
        judged: dict[str, Broken | None] = {}
        if self.rules.unchanged is not None and all(name in values for name in EXACTLY_ONE):
            judged["unchanged"] = self._unchanged(step, values, self.rules.unchanged)
        if self.rules.falling_eff_sample_size is not None and ESS in values:
            judged["falling_eff_sample_size"] = self._falling(values[ESS], self.rules.falling_eff_sample_size)
        if self.rules.jump is not None and K3 in values:
            judged["jump"] = self._jump(values[K3], self.rules.jump)
        return judged

    def _unchanged(self, step: int, values: Mapping[str, float], points: int) -> Broken | None:
        if any(values[name] != exactly for name, exactly in EXACTLY_ONE.items()):
            self._ones = 0
            return None
        if self._ones == 0:
            self._ones_since = step
        self._ones += 1
        if self._ones < points:
            return None
        return Broken("rollout_is_max", 1.0, 1.0, f" ({self._ones} points in a row)", self._ones_since)

    def _falling(self, ess: float, limit: float) -> Broken | None:
        """Compare the medians of the first and of the last quarter of a full window, which noise hardly moves."""
        self._ess.append(ess)
        if len(self._ess) < self.rules.window:
            return None
        quarter = self.rules.window // 4
        before, after = median(list(self._ess)[:quarter]), median(list(self._ess)[-quarter:])
        lowest = (1.0 - limit) * before
        remark = f" (from {before:.3g} within {self.rules.window} points)"
        return Broken(ESS, after, lowest, remark) if after < lowest else None

    def _jump(self, k3: float, limit: float) -> Broken | None:
        """Compare with the median of the window before. What has jumped does not enter it, however long it lasts."""
        if 4 * len(self._k3) >= self.rules.window:
            usual = median(self._k3)
            highest = max(limit * usual, self.rules.jump_floor)
            if k3 > highest:
                return Broken(K3, k3, highest, f" (the running median is {usual:.3g})")
        self._k3.append(k3)
        return None

    def state_dict(self) -> dict[str, Any]:
        """What is remembered, as plain numbers."""
        return {"ess": list(self._ess), "k3": list(self._k3), "ones": self._ones, "ones_since": self._ones_since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, of which a shorter window keeps the end."""
        self._ess = deque(state["ess"], maxlen=self.rules.window)
        self._k3 = deque(state["k3"], maxlen=self.rules.window)
        self._ones, self._ones_since = state["ones"], state["ones_since"]
