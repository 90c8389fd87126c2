"""Every public way in for the three tensors, as a function of them that returns every tensor that comes out."""

from collections.abc import Callable
from typing import Any

import lightning
import torch
from torch import Tensor

from lightning_rollout_is import (
    EffectiveSampleSize,
    RolloutISConfig,
    RolloutISMetrics,
    RolloutISMixin,
    aggregate_loss,
    compute_rollout_importance_weights,
    importance_weights,
    ppo_clip_loss,
    reinforce_loss,
)
from lightning_rollout_is.functional import alignment

Entry = Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]


class Policy(RolloutISMixin, lightning.LightningModule):
    def __init__(self, config: RolloutISConfig) -> None:
        super().__init__()
        self.configure_rollout_is(config)


def config_of(level: str, mode: str) -> RolloutISConfig:
    upper = 1.001 if level == "geometric" else 2.0
    return RolloutISConfig(upper, rollout_is=True, rollout_is_level=level, rollout_is_mode=mode)


def weights(level: str, mode: str) -> Entry:
    options = config_of(level, mode).weight_options
    return lambda *tensors: {"weight": importance_weights(*tensors, **options).weight}


def metrics(level: str, mode: str) -> Entry:
    def run(*tensors: Tensor) -> dict[str, Tensor]:
        metric = RolloutISMetrics(config_of(level, mode))
        metric.update(*tensors)
        return metric.compute()

    return run


def single_metric(*tensors: Tensor) -> dict[str, Tensor]:
    metric = EffectiveSampleSize(config_of("token", "mask"))
    return {"forward": metric(*tensors), "compute": metric.compute()}


def reference_signature(*tensors: Tensor) -> dict[str, Tensor]:
    weight, values = compute_rollout_importance_weights(*tensors, rollout_is_mode="mask", rollout_is_threshold=2.0)
    return {"weight": weight} | {name: torch.tensor(value) for name, value in values.items()}


def mixin_loss(old: Tensor, rollout: Tensor, mask: Tensor) -> dict[str, Tensor]:
    policy = Policy(config_of("token", "mask"))
    loss = policy.rollout_is_loss(torch.ones(mask.shape), old, rollout, mask)
    return {"loss": loss} | policy.rollout_is_metrics.compute()


def mixin_weights(*tensors: Tensor) -> dict[str, Tensor]:
    return {"weight": Policy(config_of("sequence", "truncate")).rollout_is_weights(*tensors)}


def shift_diagnostic(*tensors: Tensor) -> dict[str, Tensor]:
    return {"distance": alignment(*tensors).distance}


def ppo(old: Tensor, rollout: Tensor, mask: Tensor) -> dict[str, Tensor]:
    advantages = torch.ones(mask.shape[0])
    return {"loss": aggregate_loss(ppo_clip_loss(old, rollout, advantages, mask).token_loss, mask)}


def reinforce(old: Tensor, rollout: Tensor, mask: Tensor) -> dict[str, Tensor]:
    return {"loss": aggregate_loss(reinforce_loss(old, torch.ones(mask.shape[0]), mask), mask)}


MEASURING: dict[str, Entry] = {
    f"{make.__name__}, {level}, {mode}": make(level, mode)
    for make in (weights, metrics)
    for level in ("token", "sequence", "geometric")
    for mode in ("truncate", "mask")
} | {
    entry.__name__: entry for entry in (single_metric, reference_signature, mixin_loss, mixin_weights, shift_diagnostic)
}
"""Entry points whose results nothing may differentiate through, but for the mixin's loss."""

ENTRIES: dict[str, Entry] = MEASURING | {"ppo": ppo, "reinforce": reinforce}


def batch(rows: int = 3, length: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows * length)
    rollout = -2 * torch.rand(rows, length, generator=generator)
    old = rollout + 0.1 * torch.randn(rows, length, generator=generator)
    return old, rollout, (torch.rand(rows, length, generator=generator) < 0.9).float()


def assert_same(computed: dict[str, Any], expected: dict[str, Any]) -> None:
    assert computed.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(computed[name], value, rtol=1e-6, atol=1e-7, equal_nan=True, msg=name)
