import math

import pytest
import torch
from torch import Tensor

from lightning_rollout_is.losses import AGGREGATION_MODES, aggregate_loss
from tests.losses import plain

modes = pytest.mark.parametrize("mode", AGGREGATION_MODES)


@modes
def test_values_are_the_formula(mode: str) -> None:
    mask = plain.ragged_mask()
    loss = plain.random_like(mask)
    expected = plain.aggregate(plain.inside(loss, mask), mode)
    torch.testing.assert_close(aggregate_loss(loss, mask, mode), torch.tensor(expected, dtype=torch.float64))


@modes
def test_gradients_are_one_over_the_denominator(mode: str) -> None:
    mask = plain.ragged_mask()
    lengths = mask.sum(1, keepdim=True).double()
    per_token = {
        "token-mean": 1 / lengths.sum(),
        "seq-mean-token-sum": torch.tensor(1 / 4, dtype=torch.float64),
        "seq-mean-token-mean": 1 / (4 * lengths),
    }[mode]
    grad = plain.gradient(lambda z: aggregate_loss(z, mask, mode), plain.random_like(mask))
    torch.testing.assert_close(grad, per_token.expand(5, 6).where(mask != 0, 0.0))


@modes
@pytest.mark.parametrize("step", [1, 2, 3])
def test_parts_with_the_count_of_the_whole_add_up(mode: str, step: int) -> None:
    mask = plain.ragged_mask()
    loss = plain.random_like(mask)
    count = mask.sum() if mode == "token-mean" else torch.tensor(4)
    for denominator in (count, int(count), float(count)):
        parts = [
            aggregate_loss(loss[i : i + step], mask[i : i + step], mode, denominator=denominator)
            for i in range(0, 5, step)
        ]
        torch.testing.assert_close(torch.stack(parts).sum(), aggregate_loss(loss, mask, mode), rtol=1e-14, atol=0.0)


def test_a_fractional_denominator_is_taken_as_it_is() -> None:
    loss, mask = torch.ones(1, 2), torch.ones(1, 2)
    for denominator in (0.25, torch.tensor(0.25)):
        for mode in AGGREGATION_MODES[:2]:
            assert aggregate_loss(loss, mask, mode, denominator=denominator) == 8.0


@modes
@pytest.mark.parametrize("denominator", [None, 0, 0.0, torch.tensor(0), 8], ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)], ids=str)
def test_no_response_token_gives_zero_with_a_graph(
    shape: tuple[int, int], denominator: Tensor | float | None, mode: str
) -> None:
    loss = torch.full(shape, torch.nan, requires_grad=True)
    total = aggregate_loss(loss, torch.zeros(shape), mode, denominator=denominator)
    total.backward()
    assert total == 0.0
    assert torch.equal(loss.grad, torch.zeros(shape))


@modes
def test_padded_and_packed_agree(mode: str) -> None:
    mask = plain.ragged_mask()
    loss, drop = plain.random_like(mask), torch.rand(5, 6) > 0.5
    drop &= mask == 0
    in_rows = aggregate_loss(loss, mask, mode)
    end_to_end = aggregate_loss(
        plain.packed(loss, drop), plain.packed(mask, drop), mode, cu_seqlens=plain.boundaries(drop)
    )
    torch.testing.assert_close(end_to_end, in_rows)


@modes
def test_boundaries_that_do_not_fit_show(mode: str) -> None:
    assert aggregate_loss(torch.ones(5), torch.ones(5), mode, cu_seqlens=torch.tensor([0, 2, 4])).isnan()


@modes
@pytest.mark.parametrize("value", [0.5, -100.0, math.nan])
def test_a_mask_of_other_numbers_shows(value: float, mode: str) -> None:
    mask = torch.tensor([[1.0, value, 0.0]])
    assert aggregate_loss(torch.ones(1, 3), mask, mode).isnan()
    assert aggregate_loss(torch.ones(1, 3), mask, mode, denominator=3).isnan()


@modes
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_many_tokens_are_summed_exactly(dtype: torch.dtype, mode: str) -> None:
    loss = torch.full((2, 100_000), 0.5, dtype=dtype)
    total = aggregate_loss(loss, torch.ones(2, 100_000), mode)
    assert total.dtype == torch.float32
    assert total == (50_000.0 if mode == "seq-mean-token-sum" else 0.5)


@pytest.mark.plain
def test_inputs_are_checked() -> None:
    loss, mask = torch.ones(2, 3), torch.ones(2, 3)
    with pytest.raises(ValueError, match="mode = 'mean' is not allowed; allowed: token-mean, seq-mean-token-sum, seq-"):
        aggregate_loss(loss, mask, "mean")
    with pytest.raises(ValueError, match=r"token_loss is torch.float32 \(2, 3\); .* response_mask, \(2, 1\)"):
        aggregate_loss(loss, mask[:, :1])
    for denominator in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"denominator = {denominator} is not allowed"):
            aggregate_loss(loss, mask, denominator=denominator)
    with pytest.raises(ValueError, match=r"denominator has shape \(2,\)"):
        aggregate_loss(loss, mask, denominator=torch.ones(2))


@pytest.mark.plain
@modes
def test_compiles_to_one_graph(mode: str) -> None:
    mask = plain.ragged_mask()
    loss = plain.random_like(mask)
    compiled = torch.compile(aggregate_loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(loss, mask, mode), aggregate_loss(loss, mask, mode))
