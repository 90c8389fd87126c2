"""What must hold of the weights whatever the numbers are."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from torch import Tensor

from lightning_rollout_is.functional import importance_weights
from tests.reference import strategies
from tests.reference.batches import LAYOUTS, Batch, Tensors, batch_of_log_ratios, lay_out, read_rows

LEVELS = ("token", "sequence", "geometric")
MODES = ("truncate", "mask")
JUNK = (math.nan, math.inf, -math.inf, 1e30, -9999.0)


def weights_of(tensors: Tensors, **settings: Any) -> Tensor:
    chosen = {"mode": "truncate", "upper": 2.0, "lower": None, "veto": 1e-4} | settings
    return importance_weights(*tensors[:3], cu_seqlens=tensors.cu_seqlens, **chosen).weight


def random_batch(rows: int = 6, length: int = 9) -> Batch:
    generator = torch.Generator().manual_seed(rows)
    rollout = -torch.rand(rows, length, generator=generator, dtype=torch.float64)
    old = rollout + 0.3 * torch.randn(rows, length, generator=generator, dtype=torch.float64)
    mask = (torch.rand(rows, length, generator=generator) < 0.7).double()
    mask[0] = 0.0
    return Batch(old.tolist(), rollout.tolist(), mask.tolist())


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_outside_the_mask_is_seen(level: str, layout: str, junk: float) -> None:
    clean = lay_out(random_batch(), layout, width=12)
    outside = clean.mask == 0
    assert outside.any()
    for old, rollout in ((junk, junk), (junk, -1.0), (-1.0, junk), (math.inf, -math.inf)):
        dirty = clean._replace(
            old=clean.old.masked_fill(outside, old), rollout=clean.rollout.masked_fill(outside, rollout)
        )
        for mode in MODES:
            weight = weights_of(dirty, level=level, mode=mode)
            assert torch.equal(weight, weights_of(clean, level=level, mode=mode))
            assert not weight[outside].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_equal_policies_weigh_exactly_one(level: str, layout: str, dtype: torch.dtype) -> None:
    batch = random_batch()
    tensors = lay_out(Batch(batch.old, batch.old, batch.mask), layout, dtype)
    for mode in MODES:
        weight = weights_of(tensors, level=level, mode=mode, upper=1.0002)
        assert torch.equal(weight, tensors.mask.to(weight.dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
def test_levels_agree_on_sequences_of_one_token(mode: str, layout: str) -> None:
    tensors = lay_out(batch_of_log_ratios([[-25.0], [-0.8], [-1e-5], [0.0], [1e-5], [0.6], [0.8], [25.0]]), layout)
    token, sequence, geometric = (weights_of(tensors, level=level, mode=mode, veto=None) for level in LEVELS)
    torch.testing.assert_close(sequence, token, rtol=1e-14, atol=0.0)
    torch.testing.assert_close(geometric, token, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("level", LEVELS)
def test_layouts_agree(level: str) -> None:
    batch = random_batch()
    ragged = Batch(*([row[: 3 + index] for index, row in enumerate(rows)] for rows in batch))
    results = [read_rows(weights_of(lay_out(ragged, layout), level=level), ragged, layout) for layout in LAYOUTS]
    for rows in zip(*results, strict=True):
        for row in rows[1:]:
            assert row == pytest.approx(rows[0], rel=1e-14, abs=0.0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_sequences_do_not_see_each_other(level: str, layout: str) -> None:
    batch = random_batch()
    together = read_rows(weights_of(lay_out(batch, layout), level=level), batch, layout)
    for index, expected in enumerate(together):
        alone = Batch(*([rows[index]] for rows in batch))
        computed = read_rows(weights_of(lay_out(alone, layout), level=level), alone, layout)
        assert computed == [pytest.approx(expected, rel=1e-14, abs=0.0)]


@runs(max_examples=60, deadline=None)
@given(example=strategies.examples(), settings=strategies.settings())
def test_applied_weights_are_inside_the_bounds(example: strategies.Example, settings: dict[str, Any]) -> None:
    before = [tensor.clone() for tensor in example.tensors[:3]]
    weight = weights_of(example.tensors, **settings)
    upper = settings["upper"]
    assert not weight.requires_grad
    assert (weight >= 0).all()
    assert (weight <= upper * (1 + 1e-7)).all()
    if settings["mode"] == "mask":
        kept = weight[weight > 0]
        assert (kept >= (settings["lower"] or 1.0 / upper) * (1 - 1e-7)).all()
    for tensor, copy in zip(example.tensors[:3], before, strict=True):
        torch.testing.assert_close(tensor, copy, rtol=0.0, atol=0.0, equal_nan=True)
