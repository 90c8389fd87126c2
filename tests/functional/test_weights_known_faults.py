"""Inputs on which other implementations were seen to fail, and the weights that are right."""

import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from lightning_rollout_is.functional import importance_weights
from tests.reference.batches import batch_of_log_ratios, lay_out

E20 = math.exp(-20.0)


def weights_of(old: Any, rollout: Any, mask: Any = None, dtype: torch.dtype = torch.float64, **settings: Any) -> Tensor:
    old, rollout = (torch.as_tensor(value).to(dtype) for value in (old, rollout))
    mask = torch.ones_like(old, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
    chosen = {"level": "token", "mode": "truncate", "upper": 2.0, "lower": None, "veto": None} | settings
    return importance_weights(old, rollout, mask, **chosen).weight


class Uniform(NamedTuple):
    """A sequence of equal log ratios."""

    level: str
    mode: str
    length: int
    log_ratio: float
    weight: float


UNIFORM = (
    Uniform("sequence", "truncate", 4096, 0.01, 2.0),
    Uniform("sequence", "mask", 4096, 0.01, 0.0),
    Uniform("geometric", "truncate", 4096, 0.01, 1.0100502),
    Uniform("sequence", "truncate", 4096, -0.01, 2.0611536e-9),
    Uniform("sequence", "mask", 4096, -0.01, 0.0),
    Uniform("geometric", "mask", 4096, -0.01, 0.9900498),
    Uniform("sequence", "truncate", 300, 0.005, 2.0),
    Uniform("sequence", "truncate", 100, 0.0012, 1.1274969),
    Uniform("sequence", "mask", 4096, 0.0001, 1.5062152),
    Uniform("sequence", "truncate", 300, math.log(0.9), 2.0611536e-9),
    Uniform("geometric", "truncate", 300, math.log(0.9), 0.9),
    Uniform("token", "truncate", 1, 9998.0, 2.0),
    Uniform("token", "mask", 1, 9998.0, 0.0),
    Uniform("token", "truncate", 1, -9998.0, 2.0611536e-9),
)


@pytest.mark.parametrize("layout", ["right", "packed"])
@pytest.mark.parametrize("case", UNIFORM, ids=str)
def test_long_and_extreme_sequences(case: Uniform, layout: str) -> None:
    tensors = lay_out(batch_of_log_ratios([[case.log_ratio] * case.length], rollout=0.0), layout)
    weight = importance_weights(
        *tensors[:3], cu_seqlens=tensors.cu_seqlens, level=case.level, mode=case.mode, upper=2.0, veto=None
    ).weight
    torch.testing.assert_close(weight, torch.full_like(weight, case.weight), rtol=1e-7, atol=0.0)


@pytest.mark.parametrize(("length", "log_ratio", "weight"), [(300, 0.005, 4.481689), (100, 0.012, 3.320117)])
def test_sequence_is_the_product_and_not_the_mean(length: int, log_ratio: float, weight: float) -> None:
    computed = weights_of([[log_ratio] * length], [[0.0] * length], level="sequence", upper=10.0)
    assert computed[0, 0].item() == pytest.approx(weight, rel=1e-6)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [1.105171, 0.0, 1.221403]),
        ("sequence", [1.349859, 0.0, 1.349859]),
        ("geometric", [1.161834, 0.0, 1.161834]),
    ],
)
@pytest.mark.parametrize("missing", [math.nan, math.inf, -math.inf, -9999.0, -1e9])
@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_missing_rollout_log_prob_is_left_out(mode: str, missing: float, level: str, expected: list[float]) -> None:
    weight = weights_of([[-1.0, -1.0, -1.0]], [[-1.1, missing, -1.2]], level=level, mode=mode, veto=1e-4)
    assert weight[0].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("old", "rollout"), [(-math.inf, -math.inf), (math.nan, -1.0), (math.inf, -1.0), (math.nan, math.nan)]
)
def test_token_unknown_to_training_is_left_out(old: float, rollout: float) -> None:
    weight = weights_of([[-1.0, old]], [[-1.5, rollout]], level="sequence", veto=1e-4)
    assert weight[0].tolist() == pytest.approx([math.exp(0.5), 0.0])


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize(("veto", "others"), [(1e-4, 0.0), (None, math.nan)])
def test_impossible_token_is_a_ratio_of_zero(level: str, veto: float | None, others: float) -> None:
    weight = weights_of([[-1.0, -math.inf], [-1.0, -1.0]], [[-1.0, -1.0], [-1.0, -1.0]], level=level, veto=veto)
    if math.isnan(others):
        others = 1.0 if level == "token" else E20
    assert weight.tolist() == [pytest.approx([others, 0.0 if veto else E20], rel=1e-9, abs=0.0), [1.0, 1.0]]


def test_geometric_mean_divides_by_valid_tokens() -> None:
    weight = weights_of([[0.2, 0.4, 9.0, 9.0]], [[0.0] * 4], [[1, 1, 0, 0]], level="geometric")
    assert weight[0].tolist() == pytest.approx([1.349859, 1.349859, 0.0, 0.0], rel=1e-6)


def test_low_precision_is_widened_before_the_subtraction() -> None:
    assert weights_of([[-10.02]], [[-10.0]], dtype=torch.bfloat16).item() == 1.0
    assert weights_of([[25.0]], [[0.0]], dtype=torch.float16).item() == 2.0
    assert weights_of([[0.0078125]], [[-8.0]], dtype=torch.bfloat16, upper=1e4).item() == pytest.approx(
        math.exp(8.0078125), rel=1e-6
    )
    mixed = importance_weights(
        torch.tensor([[-1.001]]),
        torch.tensor([[-1.0]], dtype=torch.bfloat16),
        torch.ones(1, 1),
        level="token",
        mode="truncate",
        upper=2.0,
        veto=None,
    ).weight
    assert mixed.dtype == torch.float32
    assert mixed.item() == pytest.approx(math.exp(-0.001), rel=1e-6)


def test_no_gradient_flows_through_the_weight() -> None:
    log_prob = torch.tensor([[-1.0]], requires_grad=True)
    weight = importance_weights(
        log_prob, torch.tensor([[-1.5]]), torch.ones(1, 1), level="token", mode="truncate", upper=2.0, veto=None
    ).weight
    (-(weight * log_prob)).sum().backward()
    assert log_prob.grad is not None
    assert log_prob.grad.item() == pytest.approx(-1.648721, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32, torch.bfloat16])
def test_mask_of_any_dtype(dtype: torch.dtype) -> None:
    mask = torch.tensor([[1, 0, 1]]).to(dtype)
    weight = weights_of([[-1.0, 7.0, -2.0]], [[-1.5, 0.0, -1.0]], mask)
    assert weight[0].tolist() == pytest.approx([math.exp(0.5), 0.0, math.exp(-1.0)])


def test_closed_interval_keeps_its_ends() -> None:
    weight = weights_of([[-1.0, -1.0]], [[-1.0, -1.5]], mode="mask", upper=1.0, lower=1.0)
    assert weight.tolist() == [[1.0, 0.0]]


def test_veto_is_strict_and_comes_after_the_bounds() -> None:
    # log(veto) = -1 exactly, so the token at -1 is not under it.
    weight = weights_of([[-1.0, 0.0], [-1.0625, 0.0]], [[0.0, 0.0], [0.0, 0.0]], veto=math.exp(-1.0))
    assert weight.tolist() == [pytest.approx([math.exp(-1.0), 1.0]), [0.0, 0.0]]


def test_veto_sees_the_ratio_before_the_clamp() -> None:
    assert weights_of([[-22.0]], [[0.0]], veto=math.exp(-21.0)).item() == 0.0
    assert weights_of([[-20.5]], [[0.0]], veto=math.exp(-21.0)).item() == pytest.approx(E20)


def test_veto_ignores_tool_tokens() -> None:
    weight = weights_of(
        [[-1.0, -1.0, -19.0, -18.0, -1.0, -1.0]], [[-1.0, -1.0, 0.0, 0.0, -1.0, -1.0]], [[1, 1, 0, 0, 1, 1]], veto=1e-4
    )
    assert weight.tolist() == [[1.0, 1.0, 0.0, 0.0, 1.0, 1.0]]


def test_as_many_sequences_as_tokens_do_not_broadcast_crosswise() -> None:
    weight = weights_of([[0.4, 0.0], [-0.4, 0.0]], [[0.0, 0.0], [0.0, 0.0]], level="geometric")
    assert weight.tolist() == [
        pytest.approx([math.exp(0.2)] * 2),
        pytest.approx([math.exp(-0.2)] * 2),
    ]


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("layout", ["right", "packed"])
def test_nothing_valid_weighs_nothing(layout: str, level: str) -> None:
    tensors = lay_out(batch_of_log_ratios([[1.0] * 3] * 2, mask=[[0.0] * 3] * 2), layout)
    weight = importance_weights(
        *tensors[:3], cu_seqlens=tensors.cu_seqlens, level=level, mode="mask", upper=2.0, veto=1e-4
    ).weight
    assert torch.equal(weight, torch.zeros_like(tensors.old))
