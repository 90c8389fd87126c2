"""The function with the reference's signature: what it returns, and what it refuses."""

import math
from typing import Any

import pytest
import torch

from lightning_rollout_is import compute_rollout_importance_weights
from tests.reference.batches import batch_of_log_ratios, lay_out

OLD = torch.tensor([[-1.0, -2.0], [-1.0, -3.0]])
ROLLOUT = torch.tensor([[-1.5, -2.0], [-1.0, -2.5]])
MASK = torch.tensor([[1, 1], [1, 0]])


def test_off_computes_nothing() -> None:
    assert compute_rollout_importance_weights(OLD, ROLLOUT, MASK) == (None, {})
    assert compute_rollout_importance_weights(OLD, ROLLOUT, MASK, rollout_is_threshold=None) == (None, {})


def test_defaults_are_those_of_the_reference() -> None:
    weights, metrics = compute_rollout_importance_weights(OLD, ROLLOUT, MASK, "token", "truncate", 1.5)
    torch.testing.assert_close(weights, torch.tensor([[1.5, 1.0], [1.0, 0.0]]))
    assert metrics["mismatch/rollout_is_mean"] == pytest.approx((math.exp(0.5) + 2.0) / 3)
    old = torch.full((1, 2), -10.0)
    vetoed, metrics = compute_rollout_importance_weights(
        old, torch.zeros(1, 2), torch.ones(1, 2), rollout_is_threshold=2.0
    )
    assert vetoed.tolist() == [[0.0, 0.0]]
    assert metrics["mismatch/rollout_is_veto_fraction"] == 1.0


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_undefined_values_are_left_out(mode: str) -> None:
    weights, metrics = compute_rollout_importance_weights(
        OLD, ROLLOUT, torch.zeros(2, 2), rollout_is_mode=mode, rollout_is_threshold=2.0
    )
    assert torch.equal(weights, torch.zeros(2, 2))
    assert not any(math.isnan(value) for value in metrics.values())
    assert "mismatch/rollout_is_mean" not in metrics


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32])
def test_mask_of_any_dtype(dtype: torch.dtype) -> None:
    expected = compute_rollout_importance_weights(OLD, ROLLOUT, MASK, rollout_is_threshold=2.0)
    weights, metrics = compute_rollout_importance_weights(OLD, ROLLOUT, MASK.to(dtype), rollout_is_threshold=2.0)
    assert torch.equal(weights, expected[0])
    assert metrics == expected[1]


@pytest.mark.parametrize("value", [0.5, -100.0, 2.0, math.nan])
def test_mask_of_other_values_is_refused(value: float) -> None:
    mask = torch.tensor([[1.0, value], [1.0, 0.0]])
    with pytest.raises(ValueError, match="response_mask"):
        compute_rollout_importance_weights(OLD, ROLLOUT, mask, rollout_is_threshold=2.0)


WRONG: tuple[dict[str, Any], ...] = (
    {"rollout_is_threshold": 0.0},
    {"rollout_is_threshold": -1.0},
    {"rollout_is_threshold": math.inf},
    {"rollout_is_threshold": 0.5},
    {"rollout_is_threshold": 2.0, "rollout_is_threshold_lower": 3.0},
    {"rollout_is_threshold": 2.0, "rollout_is_threshold_lower": 0.0},
    {"rollout_is_threshold": 2.0, "rollout_is_veto_threshold": 0.0},
    {"rollout_is_threshold": 2.0, "rollout_is_veto_threshold": -1.0},
    {"rollout_is_threshold": 2.0, "rollout_is_level": "Token"},
    {"rollout_is_threshold": 2.0, "rollout_is_mode": "clip"},
)


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_wrong_setting_is_named(options: dict[str, Any]) -> None:
    key, value = list(options.items())[-1]
    with pytest.raises(ValueError, match=f"{key}.*{value:g}" if isinstance(value, float) else f"{key}.*{value}"):
        compute_rollout_importance_weights(OLD, ROLLOUT, MASK, **options)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("old", "rollout", "mask"),
    [((2, 2), (2, 3), (2, 2)), ((2, 2), (2, 2), (2, 3)), ((2, 2), (2, 1), (2, 2)), ((2, 2), (2, 2), (2, 1))],
)
def test_shapes_that_differ_are_refused(old: tuple[int, ...], rollout: tuple[int, ...], mask: tuple[int, ...]) -> None:
    """Even where they would broadcast."""
    with pytest.raises(ValueError, match="shape"):
        compute_rollout_importance_weights(
            torch.zeros(old), torch.zeros(rollout), torch.ones(mask), rollout_is_threshold=2.0
        )


def test_float64_stays_float64() -> None:
    tensors = lay_out(batch_of_log_ratios([[0.1, 0.2]]))
    weights, _ = compute_rollout_importance_weights(*tensors[:3], rollout_is_threshold=2.0)
    assert weights.dtype == torch.float64
    torch.testing.assert_close(weights, torch.tensor([[0.1, 0.2]], dtype=torch.float64).exp(), rtol=1e-14, atol=0.0)
