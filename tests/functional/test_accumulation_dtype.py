"""Nothing in a training step reads the device, and sums fall back to float32 where it has no float64."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_rollout_is import RolloutISConfig, aggregate_loss, ppo_clip_loss, reinforce_loss
from lightning_rollout_is.functional import alignment
from lightning_rollout_is.functional.layout import accumulation_dtype
from tests.faults.entry_points import Policy, batch

OLD, ROLLOUT, MASK = batch()
# What .item(), bool(tensor), boolean indexing and nonzero come down to. (A .tolist() goes unseen.)
READS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal.default")


class Reads(TorchDispatchMode):
    """Notes each operation that would make a GPU wait."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        indexed_by_mask = "index.Tensor" in str(func) and any(i is not None and i.dtype == torch.bool for i in args[1])
        if indexed_by_mask or any(name in str(func) for name in READS):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


def reads_of(step: Any) -> list[str]:
    with Reads() as reads:
        step()
    return reads.found


@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.plain
def test_a_training_step_reads_nothing(level: str, mode: str, packed: bool) -> None:
    upper = 1.001 if level == "geometric" else 2.0
    policy = Policy(RolloutISConfig(upper, rollout_is=True, rollout_is_level=level, rollout_is_mode=mode))
    tensors = [x.flatten() for x in (OLD, ROLLOUT, MASK)] if packed else [OLD, ROLLOUT, MASK]
    boundaries = torch.tensor([0, 16, 48]) if packed else None
    advantages = torch.ones(2 if packed else 3)

    def step() -> None:
        log_prob = tensors[0].clone().requires_grad_()
        token_loss = ppo_clip_loss(log_prob, *(tensors[0], advantages, tensors[2]), cu_seqlens=boundaries).token_loss
        token_loss = token_loss + reinforce_loss(log_prob, advantages, tensors[2], cu_seqlens=boundaries)
        weighted = policy.rollout_is_loss(token_loss, *tensors, cu_seqlens=boundaries)
        aggregate_loss(weighted, tensors[2], cu_seqlens=boundaries).backward()
        alignment(*tensors, cu_seqlens=boundaries)
        policy.rollout_is_metrics.compute()

    assert reads_of(step) == []


@pytest.mark.plain
def test_the_detector_detects() -> None:
    for read in (MASK.sum().item, MASK.sum().__bool__, lambda: OLD[MASK != 0], MASK.nonzero):
        assert reads_of(read)


@pytest.mark.plain
@pytest.mark.parametrize(("device", "dtype"), [("mps", torch.float32), ("cpu", torch.float64), ("cuda", torch.float64)])
def test_sums_are_float32_where_a_device_has_no_float64(device: str, dtype: torch.dtype) -> None:
    assert accumulation_dtype(SimpleNamespace(device=torch.device(device))) == dtype
