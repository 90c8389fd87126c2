"""What the mixin passes on to its metric: details unless they are declined, and the groups of a batch."""

from typing import Any

import lightning
import pytest
import torch

from lightning_rollout_is import RolloutISMixin
from tests.trainer.policy import ALGORITHM, rollout_batch


class Policy(RolloutISMixin, lightning.LightningModule):
    def __init__(self, algorithm: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__()
        self.configure_rollout_is(ALGORITHM if algorithm is None else algorithm, **options)


def tensors() -> tuple[torch.Tensor, ...]:
    batch = rollout_batch(0, rows=3, length=20)
    return batch["old_log_prob"], batch["rollout_log_prob"], batch["response_mask"]


def recorded(policy: Policy) -> dict[str, float]:
    assert policy.rollout_is_metrics is not None
    return {name: value.item() for name, value in policy.rollout_is_metrics.compute().items()}


def test_details_are_recorded_unless_they_are_declined() -> None:
    with_details, without = Policy(), Policy(details=False)
    for policy in (with_details, without):
        policy.rollout_is_weights(*tensors())
    both, plain = recorded(with_details), recorded(without)
    assert len(both) == len(plain) + 34
    assert {name: both[name] for name in plain} == plain


@pytest.mark.parametrize("groups", [["math", "code", "math"], torch.tensor([0, 1, 0])])
def test_groups_reach_the_metric_by_either_way(groups: Any) -> None:
    by_weights, by_loss = (Policy(groups=["math", "code"]) for _ in range(2))
    weight = by_weights.rollout_is_weights(*tensors(), groups=groups)
    loss = by_loss.rollout_is_loss(torch.ones_like(weight), *tensors(), groups=groups)
    assert torch.equal(loss, weight)
    found = recorded(by_loss)
    assert found == pytest.approx(recorded(by_weights), nan_ok=True)
    assert found["mismatch/mismatch_kl/math"] != found["mismatch/mismatch_kl/code"]
    assert found["mismatch/rollout_is_ungrouped_fraction"] == 0.0


def test_groups_of_a_module_that_is_off_are_not_looked_at() -> None:
    policy = Policy({"rollout_is_threshold": None}, groups=["math"])
    assert policy.rollout_is_weights(*tensors(), groups=["math"] * 3).sum() > 0


def test_groups_that_nobody_declared_are_refused() -> None:
    with pytest.raises(ValueError, match="groups are given and none are declared"):
        Policy().rollout_is_weights(*tensors(), groups=["math"] * 3)
