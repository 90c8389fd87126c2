"""The pass in blocks on a CPU gives what the pass on any device gives, whatever the block."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_rollout_is.functional import blocks, importance_weights
from lightning_rollout_is.functional.statistics import ALL
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.metrics.packed import Packing

SPECIAL = [0.0, -1.0, -30.0, 5.0, -9984.0, -9999.0, float("inf"), float("-inf"), float("nan")]
MASKS = [torch.bool, torch.int64, torch.uint8, torch.float32]
PACKING = Packing(ALL, ())


def measure(tensors: tuple[torch.Tensor, ...], in_blocks: bool, **options: Any) -> ImportanceWeights:
    with pytest.MonkeyPatch.context() as patch:
        if not in_blocks:
            patch.setattr(blocks.Blocks, "fit", classmethod(lambda *_: False))
        return importance_weights(*tensors, **options)


def assert_same(tensors: tuple[torch.Tensor, ...], **options: Any) -> None:
    computed, expected = (measure(tensors, in_blocks, **options) for in_blocks in (True, False))
    torch.testing.assert_close(computed.weight, expected.weight, rtol=1e-6, atol=0.0, equal_nan=True)
    ours, theirs = (PACKING.unpack(PACKING.pack(weights)) for weights in (computed, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-12, equal_nan=True)


@st.composite
def batches(draw: st.DrawFn) -> tuple[torch.Tensor, ...]:
    rows, length = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    value = st.one_of(st.floats(-30, 0, width=32), st.sampled_from(SPECIAL))
    cells = st.lists(st.lists(value, min_size=length, max_size=length), min_size=rows, max_size=rows)
    bits = st.lists(st.lists(st.booleans(), min_size=length, max_size=length), min_size=rows, max_size=rows)
    dtypes = [draw(st.sampled_from([torch.float32, torch.float32, torch.float64, torch.bfloat16])) for _ in range(2)]
    old, rollout = (torch.tensor(draw(cells), dtype=dtype) for dtype in dtypes)
    return old, rollout, torch.tensor(draw(bits)).to(draw(st.sampled_from(MASKS)))


@settings(deadline=None)
@given(
    tensors=batches(),
    block=st.sampled_from([1, 7, 1 << 17]),
    level=st.sampled_from(["token", "sequence", "geometric"]),
    mode=st.sampled_from(["truncate", "mask"]),
    veto=st.sampled_from([None, 1e-4, 0.5]),
)
def test_blocks_and_one_pass_agree(tensors: tuple[torch.Tensor, ...], block: int, **options: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_block_size", lambda _: block)
        assert_same(tensors, upper=2.0, **options)


@pytest.mark.parametrize(
    "options", [{"upper": 0.9, "lower": 0.5}, {"upper": 4.0, "lower": 1.5}, {"upper": 2.0, "veto": 1.5}]
)
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_thresholds_that_exclude_1(level: str, options: dict[str, float]) -> None:
    """A token that is not valid has weight 1 inside the block, and is outside these thresholds."""
    generator = torch.Generator().manual_seed(0)
    old, rollout = -torch.rand(2, 6, 9, generator=generator)
    mask = torch.rand(6, 9, generator=generator) < 0.5
    assert_same((old, rollout, mask), level=level, **options)


@pytest.mark.parametrize("value", [0.5, -100.0, float("nan"), 2.0])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_malformed_masks_spoil_their_sequence_alone(level: str, value: float) -> None:
    mask = torch.ones(3, 4)
    mask[1, 2] = value
    weights = measure((torch.zeros(3, 4), torch.zeros(3, 4), mask), in_blocks=True, level=level, upper=2.0)
    assert weights.weight[1].isnan().all()
    assert (weights.weight[[0, 2]] == 1.0).all()
    assert PACKING.pack(weights)[: PACKING.sums].isnan().any()


def test_malformed_values_that_add_up_to_nothing() -> None:
    """``m (m - 1)`` of these four is 0 in sum."""
    mask = torch.tensor([[0.5, 0.5, 0.5, -0.5]])
    assert measure((torch.zeros(1, 4), torch.zeros(1, 4), mask), in_blocks=True, upper=2.0).weight.isnan().all()


def test_inputs_stay_as_they_are() -> None:
    """The blocks write over tensors of their own alone."""
    tensors = -torch.rand(5, 8), -torch.rand(5, 8), torch.rand(5, 8) < 0.5
    copies = [tensor.clone() for tensor in tensors]
    measure(tensors, in_blocks=True, upper=2.0)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, copies, strict=True))


def test_strided_inputs_and_gradients() -> None:
    old = torch.rand(8, 5, requires_grad=True)
    tensors = -old.T, (-torch.rand(5, 16))[:, ::2], torch.ones(8, 5).T
    assert_same(tensors, upper=2.0)
    assert not measure(tensors, in_blocks=True, upper=2.0).weight.requires_grad


@pytest.mark.parametrize("in_blocks", [True, False])
def test_a_weight_at_a_threshold_is_kept(in_blocks: bool) -> None:
    log_ratio = torch.tensor([[0.5, -0.5]])
    upper, lower = (1.0 + torch.expm1(log_ratio).double()[0]).tolist()
    tensors = log_ratio, torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    weights = measure(tensors, in_blocks, mode="mask", upper=upper, lower=lower)
    assert weights.weight.tolist() == log_ratio.exp().tolist()
    assert weights.units.outside.item() == 0.0
