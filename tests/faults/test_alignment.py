"""A rollout tensor that lies one token off: real data always shows it, and sound data never does."""

import math

import pytest
import torch
from torch import Tensor

from lightning_rollout_is.functional import Alignment, alignment
from tests.faults.rollouts import ENGINES, read_rollouts
from tests.reference.batches import LAYOUTS, Batch, Tensors, batch_of_log_ratios, lay_out

# How far to the right, whose log-probs, and which of the three shifts comes closest then.
ROLLS = ((1, False, 2), (-1, False, 0), (1, True, 0), (-1, True, 2))


def aligned(tensors: Tensors) -> Alignment:
    return alignment(*tensors[:3], cu_seqlens=tensors.cu_seqlens)


def rolled(batch: Batch, shift: int, *, training: bool = False) -> Batch:
    """Each row of one policy rolled to the right, as a slice that starts one token early or late does."""

    def roll(row: list[float]) -> list[float]:
        return [row[(position - shift) % len(row)] for position in range(len(row))]

    if training:
        return batch._replace(old=[roll(row) for row in batch.old])
    return batch._replace(rollout=[roll(row) for row in batch.rollout])


def random_batch(rows: int, length: int, mismatch: float) -> Batch:
    generator = torch.Generator().manual_seed(rows * length)
    rollout = -3 * torch.rand(rows, length, generator=generator, dtype=torch.float64)
    old = rollout + mismatch * torch.randn(rows, length, generator=generator, dtype=torch.float64)
    return Batch(old.tolist(), rollout.tolist(), [[1.0] * length] * rows)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("engine", ENGINES)
class TestRealRollouts:
    def test_as_they_came(self, engine: str, layout: str) -> None:
        found = aligned(lay_out(read_rollouts(engine), layout))
        assert not found.shifted
        assert found.distance.argmin() == 1

    @pytest.mark.parametrize(
        ("shift", "training", "best"), [(1, False, 2), (-1, False, 0), (1, True, 0), (-1, True, 2)]
    )
    def test_rolled_by_one(self, engine: str, layout: str, shift: int, training: bool, best: int) -> None:
        found = aligned(lay_out(rolled(read_rollouts(engine), shift, training=training), layout))
        assert found.shifted
        assert found.distance.argmin() == best

    def test_one_response_suffices(self, engine: str, layout: str) -> None:
        batch = read_rollouts(engine)
        for row in range(len(batch.mask)):
            one = Batch(*([rows[row]] for rows in batch))
            if len(one.mask[0]) < 34:
                continue
            assert not aligned(lay_out(one, layout)).shifted
            assert aligned(lay_out(rolled(one, 1), layout)).shifted


@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_rolled_by_one_position(layout: str) -> None:
    old = random_batch(1, 64, 0.0).old
    batch = Batch(old, [old[0][-1:] + old[0][:-1]], [[1.0] * 64])
    found = aligned(lay_out(batch, layout, width=70))
    assert found.distance[1] > 0.5
    assert found.distance[2] == 0.0
    assert found.shifted


@pytest.mark.parametrize("layout", LAYOUTS)
def test_distances_are_means_over_the_tokens_between_two_valid_ones(layout: str) -> None:
    batch = Batch(
        old=[[-1.0, -2.0, -4.0, -8.0], [-9.0, -9.0, -1.0, -3.0, -6.0]],
        rollout=[[-1.0, -3.0, -4.0, -9.0], [-9.0, -9.0, -2.0, -3.0, -8.0]],
        mask=[[1.0] * 4, [1.0, 0.0, 1.0, 1.0, 1.0]],
    )
    found = aligned(lay_out(batch, layout, padding=math.nan, width=6))
    assert found.tokens == 3
    # Tokens -2, -4 and -3, against their rollout's left neighbour, itself and its right neighbour.
    assert found.distance.tolist() == pytest.approx([(1 + 1 + 1) / 3, (1 + 0 + 0) / 3, (2 + 5 + 5) / 3])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_neighbour_in_another_sequence_is_none(layout: str) -> None:
    found = aligned(lay_out(random_batch(40, 2, 0.1), layout))
    assert found.tokens == 0
    assert found.distance.isnan().all()
    assert not found.shifted


SOUND = {
    "equal policies": random_batch(4, 30, 0.0),
    "a constant in each sequence": batch_of_log_ratios([[0.0] * 40, [0.5] * 40]),
    "a constant offset of a varying policy": Batch(
        random_batch(1, 60, 0.0).old, [[value - 3.0 for value in random_batch(1, 60, 0.0).old[0]]], [[1.0] * 60]
    ),
    "unrelated policies": random_batch(2, 40, 3.0),
    "few tokens": rolled(random_batch(1, 33, 0.0), 1),
    "an impossible token": Batch([[-1.0, -math.inf] * 20], [[-1.0] * 40], [[1.0] * 40]),
    "missing tokens": Batch([[-1.0, -2.0] * 20], [[-1.0, math.nan] * 20], [[1.0] * 40]),
}


@pytest.mark.parametrize("position", [0, 1, 2, 20, 37, 38, 39])
def test_one_outlier_does_not_decide(position: int) -> None:
    """A policy that is sure of all its tokens, and one token on which the engine is not."""
    batch = batch_of_log_ratios([[0.0] * 40], rollout=-1e-3)
    batch.rollout[0][position] = -4.0
    found = aligned(lay_out(batch))
    assert not found.shifted
    # Next to an end, one of the shifts does not see it: the means alone would tell of a shift.
    assert (found.distance.min() * 2 < found.distance[1]) == (position in (1, 38))


@pytest.mark.parametrize("name", SOUND)
def test_sound_data_is_not_called_shifted(name: str) -> None:
    assert not aligned(lay_out(SOUND[name])).shifted


def test_the_margin() -> None:
    old = [0.0, -4.0] * 30
    for offset, shifted in ((2.7, True), (2.6, False)):
        # Every other rollout log-prob is `offset` off where it belongs and 4 - offset off its neighbours.
        batch = Batch([old], [[value - offset if value == 0.0 else value + offset for value in old]], [[1.0] * 60])
        assert aligned(lay_out(batch)).shifted == shifted


def test_unrelated_policies_hardly_ever_look_shifted() -> None:
    found = 0
    for seed in range(300):
        generator = torch.Generator().manual_seed(seed)
        old, rollout = (-torch.empty(1, 34).exponential_(generator=generator) for _ in range(2))
        found += int(alignment(old, rollout, torch.ones(1, 34)).shifted)
    assert found <= 1


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (3, 1), (3, 2)])
def test_too_short_for_a_neighbour(shape: tuple[int, int]) -> None:
    empty = torch.zeros(shape)
    found = alignment(empty, empty, empty)
    assert found.tokens == 0
    assert not found.shifted


def test_tokens_without_a_usable_log_prob_hide_no_shift() -> None:
    batch = rolled(random_batch(1, 60, 0.0), 1)
    batch.old[0][20], batch.rollout[0][40] = -math.inf, math.nan
    found = aligned(lay_out(batch))
    assert found.tokens == 60 - 2 - 3 - 3
    assert found.distance.isfinite().all()
    assert found.shifted


def test_malformed_values_prove_nothing() -> None:
    batch = lay_out(rolled(random_batch(2, 40, 0.0), 1), "packed")
    wrong_mask: Tensor = batch.mask * 0.5
    boundaries = torch.tensor([0, 40, 81])
    for found in (
        alignment(batch.old, batch.rollout, wrong_mask, batch.cu_seqlens),
        alignment(batch.old, batch.rollout, batch.mask, boundaries),
    ):
        assert found.tokens.isnan()
        assert not found.shifted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision(dtype: torch.dtype) -> None:
    batch = read_rollouts(ENGINES[1])
    assert not aligned(lay_out(batch, old_dtype=dtype)).shifted
    assert aligned(lay_out(rolled(batch, 1), old_dtype=dtype)).shifted
    assert aligned(lay_out(batch, old_dtype=dtype)).distance.dtype == torch.float64


@pytest.mark.plain
def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="must have one shape"):
        alignment(torch.zeros(2, 5), torch.zeros(2, 1), torch.ones(2, 5))


@pytest.mark.plain
@pytest.mark.parametrize("layout", ["right", "packed"])
def test_compiles_to_one_graph(layout: str) -> None:
    tensors = lay_out(rolled(read_rollouts(ENGINES[0]), 1), layout)
    compiled = torch.compile(alignment, fullgraph=True, backend="eager")
    found = compiled(*tensors[:3], cu_seqlens=tensors.cu_seqlens)
    assert found.shifted
    torch.testing.assert_close(found.distance, aligned(tensors).distance)
