"""What token_log_probs refuses, in its own words."""

import pytest
import torch
from torch import Tensor

from lightning_rollout_is.functional import token_log_probs


@pytest.mark.plain
@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_temperature_is_checked(temperature: float) -> None:
    with pytest.raises(
        ValueError, match=rf"temperature = {temperature} is not allowed; it must be positive and finite"
    ):
        token_log_probs(torch.zeros(2, 7), torch.zeros(2, dtype=torch.long), temperature)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("logits", "token_ids", "message"),
    [
        (torch.zeros(2, 3, 7), torch.zeros(2, 4, dtype=torch.long), r"\(2, 3, 7\) and token_ids \(2, 4\)"),
        (torch.zeros(2, 7), torch.zeros(2, 1, dtype=torch.long), r"\(2, 7\) and token_ids \(2, 1\)"),
        (torch.zeros(()), torch.zeros((), dtype=torch.long), "leading shape"),
        (torch.zeros(2, 7, dtype=torch.long), torch.zeros(2, dtype=torch.long), "logits are torch.int64"),
        (torch.zeros(2, 7), torch.zeros(2), "token_ids has dtype torch.float32"),
        (torch.zeros(2, 7), torch.zeros(2, dtype=torch.bool), "token_ids has dtype torch.bool"),
    ],
)
def test_inputs_are_checked(logits: Tensor, token_ids: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        token_log_probs(logits, token_ids)
