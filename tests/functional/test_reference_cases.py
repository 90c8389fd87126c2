"""The 60 cases of the reference implementation, through the function that has the reference's signature.

No case touches a decision in which the specification departs from the reference (`test_oracle.py` shows it), so every
value is compared.
"""

from typing import Any

import pytest
import torch

from lightning_rollout_is import compute_rollout_importance_weights
from tests.reference.cases import CASES, Case

# Thresholds of the cases are chosen to bite, not to be recommended.
pytestmark = pytest.mark.filterwarnings("ignore:rollout_is_threshold:UserWarning")

PREFIX = "mismatch/"


def call(case: Case, dtype: torch.dtype) -> Any:
    old, rollout = (torch.tensor(rows, dtype=torch.float64).to(dtype) for rows in case.inputs[:2])
    return compute_rollout_importance_weights(old, rollout, torch.tensor(case.inputs[2]), **case.config)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_float64(case: Case) -> None:
    weights, metrics = call(case, torch.float64)
    torch.testing.assert_close(weights, torch.tensor(case.weights, dtype=torch.float64), rtol=2e-6, atol=2e-7)
    missing = metrics.pop(PREFIX + "rollout_is_missing_fraction")
    assert missing == 0.0
    assert all(isinstance(value, float) for value in metrics.values())
    assert metrics == pytest.approx({PREFIX + name: value for name, value in case.metrics.items()}, rel=2e-6, abs=2e-7)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_float32(case: Case) -> None:
    """Rounding to float32 moves a log-prob near -17 by up to 1e-6 nats, and a sequence of 8 tokens by up to 1e-5."""
    weights, metrics = call(case, torch.float32)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, torch.tensor(case.weights), rtol=1e-5, atol=1e-5)
    expected = {PREFIX + name: value for name, value in case.metrics.items()}
    expected[PREFIX + "rollout_is_missing_fraction"] = 0.0
    assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-5)
