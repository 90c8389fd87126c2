"""Says in plain words when a run is unhealthy, and ends it if asked to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from lightning_rollout_is.callbacks.curves import Curves
from lightning_rollout_is.callbacks.observers import WrittenPoint
from lightning_rollout_is.callbacks.rollout_is import RolloutISCallback
from lightning_rollout_is.health import Finding, HealthHistory, Rules

ENDINGS = {
    "warn": "Said once until it is over.",
    "stop": "Training stops here (on_unhealthy: stop).",
    "raise": "Training ends here (on_unhealthy: raise).",
}
"""What becomes of a run, by ``on_unhealthy``."""


class UnhealthyError(RuntimeError):
    """Training was ended because of its health.

    Args:
        message: What is wrong, since when, why and what to do.
        findings: The same, in parts.
    """

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class RolloutISHealth(Callback):
    """Judges each point that :class:`RolloutISCallback` writes, which the Trainer must have too, in any order.

    When a rule begins to hold, one warning says what is wrong, since which step, likely causes, most likely first, and
    what to set. It comes once an episode, which is over after ``rules.recovery`` points without it; then a line at
    level INFO says so. Every rank sees the same values and decides alike. On CUDA a point, and with it a finding, comes
    one optimizer step late, at its own step. Episodes and what the rules remember are in checkpoints: a run that goes
    on from one neither repeats a warning nor forgets that it was given.

    Key, behind the prefix of the points: ``health_findings``, the number of rules that hold at a point, to every logger
    and to ``trainer.callback_metrics``.

    Args:
        rules: A :class:`~lightning_rollout_is.health.Rules`, or a mapping of thresholds; ``None`` for the defaults.
        on_unhealthy: When an episode begins, ``"warn"``; ``"stop"`` also ends training as early stopping does;
            ``"raise"`` raises instead, on every rank.

    Raises:
        ValueError: ``on_unhealthy`` or a threshold is not allowed.
        UnhealthyError: While training, on every rank, with ``on_unhealthy="raise"``.
        MisconfigurationException: At the start of ``fit``, the Trainer has no :class:`RolloutISCallback`.

    Example:
        >>> RolloutISHealth({"kl": 0.2}, on_unhealthy="stop").rules.kl
        0.2
        >>> RolloutISHealth(on_unhealthy="panic")
        Traceback (most recent call last):
        ValueError: on_unhealthy = 'panic' is not allowed; allowed: warn, stop, raise
    """

    findings: list[Finding]
    """All that holds at the last point, what may explain the rest first."""

    def __init__(self, rules: Rules | Mapping[Any, Any] | None = None, on_unhealthy: str = "warn") -> None:
        if on_unhealthy not in ENDINGS:
            raise ValueError(f"on_unhealthy = {on_unhealthy!r} is not allowed; allowed: {', '.join(ENDINGS)}")
        self.rules = rules if isinstance(rules, Rules) else Rules.from_mapping({} if rules is None else rules)
        self.on_unhealthy = on_unhealthy
        self.findings = []
        self._history = HealthHistory(self.rules)
        self._prefix: str | None = None
        # The other callback sees to it that loggers write out what they hold.
        self._curves = Curves(flush_seconds=math.inf)

    @property
    def state_key(self) -> str:
        """Tells one that warns from one that stops training in the same Trainer."""
        return self._generate_state_key(on_unhealthy=self.on_unhealthy)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a Trainer in which there would be nothing to judge."""
        if stage == "fit" and not _sources(trainer):
            raise MisconfigurationException(
                "RolloutISHealth judges what RolloutISCallback writes, and the Trainer has no RolloutISCallback; give "
                "it both (Trainer(callbacks=[RolloutISCallback(), RolloutISHealth()]), or callbacks=health)"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin without a past, unless training goes on from a checkpoint or from an earlier ``fit``."""
        self._prefix = None
        if trainer.global_step == 0:
            self.findings, self._history = [], HealthHistory(self.rules)

    def on_rollout_is_point(self, trainer: Trainer, point: WrittenPoint) -> None:
        """Judge a point, of the first :class:`RolloutISCallback` if there are several with prefixes of their own."""
        if self._prefix is None:
            self._prefix = self._history.prefix = point.prefix
        if point.prefix != self._prefix:
            return
        self.findings = self._history.observe(point.step, point.numbers)
        key, count = f"{point.prefix}health_findings", float(len(self.findings))
        self._curves.add(trainer, {key: torch.tensor(count)}, {key: count}, point.step)
        for rule, first in self._history.ended.items():
            rank_zero_info(f"RolloutISHealth: {rule}, which began at step {first}, is over at step {point.step}.")
        if self._history.begun:
            self._act(trainer, self._history.begun, point.step)

    def _act(self, trainer: Trainer, begun: Sequence[Finding], step: int) -> None:
        # What has ended training by itself must not be hidden.
        ending = "warn" if trainer.interrupted else self.on_unhealthy
        message = _words(begun, step, ENDINGS[ending])
        if ending == "raise":
            raise UnhealthyError(message, begun)
        rank_zero_warn(message)
        if ending == "stop":
            trainer.should_stop = True

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save what is known after the point that is under way: Lightning takes the states before it calls this."""
        for source in _sources(trainer):
            source.on_save_checkpoint(trainer, pl_module, checkpoint)
        checkpoint.setdefault("callbacks", {})[self.state_key] = self.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """What the rules remember, and the open episodes."""
        return self._history.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""
        self._history.load_state_dict(state_dict)


def _sources(trainer: Trainer) -> list[RolloutISCallback]:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return [callback for callback in callbacks if isinstance(callback, RolloutISCallback)]


def _words(findings: Sequence[Finding], step: int, ending: str) -> str:
    """One message for all that begins at a point.

    Example:
        >>> finding = Finding("kl", "mismatch/mismatch_kl", 0.2, 0.1, 7, "The KL is large", ("int4",), "Use bf16")
        >>> print(_words([finding], 7, "Said once."))
        RolloutISHealth at step 7:
        [kl] The KL is large (mismatch/mismatch_kl = 0.2, threshold 0.1, since step 7). Likely causes: (1) int4. What to
        do: Use bf16.
        Said once. To turn a rule off: callbacks.health.rules.kl: null
    """
    lines = [f"[{finding.rule}] {finding.described()}" for finding in findings]
    off = f"To turn a rule off: callbacks.health.rules.{findings[0].rule}: null"
    return "\n".join([f"RolloutISHealth at step {step}:", *lines, f"{ending} {off}"])
