"""From scalars to words: what is wrong with a run, since when, why, and what to set. Knows numbers alone."""

from lightning_rollout_is.health.checks import check
from lightning_rollout_is.health.finding import Finding
from lightning_rollout_is.health.history import HealthHistory
from lightning_rollout_is.health.rules import Rules

__all__ = ["Finding", "HealthHistory", "Rules", "check"]
