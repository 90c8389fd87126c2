"""What the tokens of each sequence add up to, read from the definition that every device runs."""

import pytest
import torch

from lightning_rollout_is.functional import compute_log_ratio, importance_weights, layout_of
from lightning_rollout_is.functional.statistics.faults import fault_update
from lightning_rollout_is.functional.sums import token_sums


def test_counts_of_long_sequences() -> None:
    """More tokens than a byte counts."""
    ones = torch.ones(1, 300, dtype=torch.bool)
    sums = token_sums(compute_log_ratio(-ones.float(), -ones.float(), ones), layout_of(ones), -9.0)
    assert sums.tokens.tolist() == sums.inside.tolist() == [300.0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_unfit_boundaries_are_a_fault_of_every_sequence(dtype: torch.dtype) -> None:
    """A bool mask cannot be malformed, and is no excuse."""
    tokens = -torch.rand(5)
    weights = importance_weights(
        tokens, tokens, torch.ones(5, dtype=dtype), upper=2.0, cu_seqlens=torch.tensor([0, 2, 9])
    )
    faults = fault_update(weights)[1]
    assert faults.unfit_boundaries.tolist() == [1.0, 1.0]
    assert faults.malformed_mask.tolist() == [0.0, 0.0]
    assert weights.sums.present.isnan().all()


@pytest.mark.parametrize("value", [1e-50, 1.0 + 1e-12])
def test_a_float64_mask_is_not_rounded_before_it_is_judged(value: float) -> None:
    mask = torch.tensor([[1.0, value]], dtype=torch.float64)
    assert importance_weights(torch.zeros(1, 2), torch.zeros(1, 2), mask, upper=2.0).weight.isnan().all()
