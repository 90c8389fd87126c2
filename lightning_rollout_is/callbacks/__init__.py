"""When to read the statistics, and where to write them."""

from lightning_rollout_is.callbacks.rollout_is import RolloutISCallback

__all__ = ["RolloutISCallback"]
