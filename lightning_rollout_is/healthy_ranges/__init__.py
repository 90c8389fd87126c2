"""Which values of a statistic are healthy, and from where on they call for action."""

from lightning_rollout_is.healthy_ranges.range import Grade, HealthyRange
from lightning_rollout_is.healthy_ranges.table import RANGES

GRADE_COLORS: dict[Grade, str] = {"healthy": "#2e9e4f", "watch": "#e0a000", "unhealthy": "#d03030"}
"""Of the bands behind a curve."""

__all__ = ["GRADE_COLORS", "RANGES", "Grade", "HealthyRange"]
