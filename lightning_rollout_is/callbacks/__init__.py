"""When to read the statistics, where to write them, and what to say of them."""

from lightning_rollout_is.callbacks.health import RolloutISHealth, UnhealthyError
from lightning_rollout_is.callbacks.observers import PointObserver, WrittenPoint
from lightning_rollout_is.callbacks.rollout_is import RolloutISCallback

__all__ = ["PointObserver", "RolloutISCallback", "RolloutISHealth", "UnhealthyError", "WrittenPoint"]
