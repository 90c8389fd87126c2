"""Metrics of the library, read the way that the tests compare them."""

import warnings
from collections.abc import Iterable
from typing import Any

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics
from tests.reference.batches import Tensors

TOKEN = {"level": "token", "mode": "mask", "upper": 2.0, "lower": None, "veto": 1e-4}


def config_of(settings: dict[str, Any]) -> RolloutISConfig:
    """A configuration, without the remarks that unusual thresholds earn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return RolloutISConfig(
            rollout_is_threshold=settings["upper"],
            rollout_is_threshold_lower=settings["lower"],
            rollout_is_level=settings["level"],
            rollout_is_mode=settings["mode"],
            rollout_is_veto_threshold=settings["veto"],
        )


def update(metric: Any, tensors: Tensors) -> None:
    metric.update(*tensors[:3], cu_seqlens=tensors.cu_seqlens)


def values(metric: RolloutISMetrics) -> dict[str, float]:
    return {name.removeprefix("mismatch/"): value.item() for name, value in metric.compute().items()}


def metrics_of(batches: Iterable[Tensors], **settings: Any) -> dict[str, float]:
    """All metrics after one update a batch."""
    metric = RolloutISMetrics(config_of(TOKEN | settings))
    for tensors in batches:
        update(metric, tensors)
    return values(metric)
