"""What is measured: batches of log-probs, and the three ways of weighing them."""

import timing  # noqa: F401  (sets how threads wait, before torch is imported)

# isort: split
from collections.abc import Callable

import torch
from reference import reference

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics

LEVELS = ("token", "sequence", "geometric")
THRESHOLDS = {"token": 2.0, "sequence": 5.0, "geometric": 1.001}
SHAPES = ((64, 512), (256, 1024), (512, 4096))
IMPLEMENTATIONS = ("reference", "eager", "compiled")
FASTER = {"eager": (5, 10, 12), "compiled": (12, 35, 45)}
"""Times faster than the reference that are aimed at, by shape."""

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def batch(rows: int, length: int, device: str = "cpu") -> Batch:
    """Log-probs of both policies, 0.05 nats apart, and a bool mask that ends each row in its second half."""
    generator = torch.Generator().manual_seed(0)
    rollout = -3 * torch.rand(rows, length, generator=generator)
    old = rollout + 0.05 * torch.randn(rows, length, generator=generator)
    lengths = torch.randint(length // 2, length + 1, (rows, 1), generator=generator)
    mask = torch.arange(length) < lengths
    return old.to(device), rollout.to(device), mask.to(device)


def config(level: str) -> RolloutISConfig:
    return RolloutISConfig(rollout_is_level=level, rollout_is_threshold=THRESHOLDS[level], rollout_is=True)


def by_level(values: list, form: str) -> str:
    """Token, sequence and geometric level in one cell."""
    return " / ".join(form.format(value) for value in values)


def weighing(name: str, level: str, device: str = "cpu") -> Callable[..., object]:
    """Weights and all statistics of a batch, by one of the three."""
    if name != "reference":
        return RolloutISMetrics(config(level), compile=name == "compiled").to(device).weigh
    published, threshold = reference(), THRESHOLDS[level]
    return lambda *tensors: published(*tensors, rollout_is_level=level, rollout_is_threshold=threshold)
