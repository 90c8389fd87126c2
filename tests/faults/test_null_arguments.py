"""A metric built from a file that spells its arguments out as null synchronises like any other."""

import pytest
from omegaconf import OmegaConf

import lightning_rollout_is
from lightning_rollout_is import RolloutISConfig
from lightning_rollout_is.metrics.base import PackedMetric

METRICS = [
    name
    for name in lightning_rollout_is.__all__
    if isinstance(kind := getattr(lightning_rollout_is, name), type) and issubclass(kind, PackedMetric)
]
HOOKS = OmegaConf.create("{dist_sync_fn: null, process_group: null, distributed_available_fn: null}")


def test_all_metrics_are_here() -> None:
    assert {"RolloutISMetrics", "EffectiveSampleSize", "RolloutKL"} < set(METRICS)


@pytest.mark.parametrize("name", METRICS)
def test_hooks_of_null_are_the_default_ones(name: str) -> None:
    kind, config = getattr(lightning_rollout_is, name), RolloutISConfig(2.0, rollout_is_mode="mask")
    given, default = kind(config, **HOOKS), kind(config)
    for hook in HOOKS:
        assert getattr(given, hook) is getattr(default, hook), hook
    assert callable(given.dist_sync_fn)
    assert given.sync_on_compute
