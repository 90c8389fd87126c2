"""The applied weights, and the gradient of a loss that they multiply, against the oracle."""

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as runs

from lightning_rollout_is.functional import importance_weights
from tests.reference import oracle, strategies
from tests.reference.batches import read_rows
from tests.reference.closeness import NOISE, assert_weights_close, computed_dtype, is_on_a_knife_edge, log_weight_error
from tests.reference.strategies import Example


@runs(max_examples=200, deadline=None)
@given(example=strategies.examples(), settings=strategies.settings())
def test_weights(example: Example, settings: dict[str, Any]) -> None:
    old, rollout, mask, cu_seqlens = example.tensors
    dtype = computed_dtype(old.dtype, rollout.dtype)
    # A weight that rounding alone puts inside or outside a threshold is right either way.
    assume(not is_on_a_knife_edge(example.batch, settings, NOISE[dtype]))
    weight = importance_weights(old, rollout, mask, cu_seqlens=cu_seqlens, **settings).weight
    assert weight.dtype == dtype
    assert weight.shape == old.shape
    expected = oracle.weights(*example.batch, **settings)
    assert_weights_close(read_rows(weight, example.batch, example.layout), expected, example.batch, NOISE[dtype])
    assert weight.count_nonzero() == sum(value != 0.0 for row in expected for value in row)


@runs(max_examples=60, deadline=None)
@given(example=strategies.examples(), settings=strategies.settings())
def test_gradient_of_weighted_loss(example: Example, settings: dict[str, Any]) -> None:
    old, rollout, mask, cu_seqlens = example.tensors
    noise = NOISE[computed_dtype(old.dtype, rollout.dtype)]
    assume(not is_on_a_knife_edge(example.batch, settings, noise) and mask.any())
    old.requires_grad_()
    rollout.requires_grad_()
    token_loss = torch.zeros_like(old, dtype=torch.float64, requires_grad=True)
    weight = importance_weights(old, rollout, mask, cu_seqlens=cu_seqlens, **settings).weight
    ((weight * token_loss).sum() / mask.bool().sum()).backward()
    assert token_loss.grad is not None
    assert old.grad is None
    assert rollout.grad is None
    gradient = read_rows(token_loss.grad, example.batch, example.layout)
    expected = oracle.weighted_loss_gradient(oracle.weights(*example.batch, **settings), example.batch.mask)
    relative = 2 * (noise + log_weight_error(example.batch, noise))
    for computed_row, expected_row in zip(gradient, expected, strict=True):
        assert computed_row == pytest.approx(expected_row, rel=relative, abs=0.0)
