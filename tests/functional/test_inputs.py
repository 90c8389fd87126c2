"""What `importance_weights` refuses, and how malformed values that it cannot read without a halt show themselves."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_rollout_is.functional import importance_weights

SETTINGS: dict[str, Any] = {"level": "sequence", "mode": "mask", "upper": 2.0, "veto": 1e-4}
OLD, ROLLOUT = torch.tensor([[-1.0, -2.0], [-1.0, -3.0]]), torch.tensor([[-1.5, -2.0], [-1.0, -2.5]])


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("value", [0.5, -100.0, 2.0, math.nan, math.inf])
def test_mask_value_that_is_neither_0_nor_1_makes_nan(value: float, level: str) -> None:
    mask = torch.tensor([[1.0, value], [1.0, 1.0]])
    weight = importance_weights(OLD, ROLLOUT, mask, **SETTINGS | {"level": level}).weight
    assert weight[0, 1].isnan()
    assert weight[1].isfinite().all()
    with_junk = importance_weights(OLD.masked_fill(mask != 1, torch.nan), ROLLOUT, mask, **SETTINGS).weight
    assert with_junk[0, 1].isnan()


@pytest.mark.parametrize("boundaries", [[0, 2], [1, 4], [0, 3, 2, 4], [0, 5], [0, 2, 6, 4]])
def test_boundaries_that_do_not_fit_make_nan(boundaries: list[int]) -> None:
    tokens = OLD.flatten(), ROLLOUT.flatten(), torch.ones(4, dtype=torch.bool)
    for level in ("token", "sequence", "geometric"):
        settings = SETTINGS | {"level": level, "cu_seqlens": torch.tensor(boundaries)}
        assert importance_weights(*tokens, **settings).weight.isnan().all()


WRONG: dict[str, tuple[tuple[Tensor, Tensor, Tensor], dict[str, Any], str]] = {
    "shape": ((OLD, ROLLOUT[:, :1], torch.ones(2, 2)), {}, r"shape"),
    "mask shape": ((OLD, ROLLOUT, torch.ones(2)), {}, r"response_mask"),
    "integers": ((OLD.long(), ROLLOUT, torch.ones(2, 2)), {}, r"old_log_prob.*int64"),
    "level": ((OLD, ROLLOUT, torch.ones(2, 2)), {"level": "seq"}, r"seq.*token, sequence, geometric"),
    "mode": ((OLD, ROLLOUT, torch.ones(2, 2)), {"mode": "clip"}, r"clip.*truncate, mask"),
    "packed without boundaries": ((OLD[0], ROLLOUT[0], torch.ones(2)), {}, r"cu_seqlens"),
    "padded with boundaries": ((OLD, ROLLOUT, torch.ones(2, 2)), {"cu_seqlens": torch.tensor([0, 4])}, "packed"),
    "float boundaries": ((OLD[0], ROLLOUT[0], torch.ones(2)), {"cu_seqlens": torch.tensor([0.0, 2.0])}, "float32"),
    "no boundary": ((OLD[0], ROLLOUT[0], torch.ones(2)), {"cu_seqlens": torch.zeros(0, dtype=torch.int32)}, "shape"),
}


@pytest.mark.plain
@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_named(case: str) -> None:
    tensors, options, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        importance_weights(*tensors, **SETTINGS | options)
