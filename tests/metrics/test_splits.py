"""However the data is split, ordered, padded or merged, the numbers are those of the whole."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as runs
from hypothesis import strategies as st

from lightning_rollout_is import RolloutISMetrics
from tests.reference import oracle, strategies
from tests.reference.batches import LAYOUTS, Batch, Tensors, batch_of_ratios, lay_out
from tests.reference.closeness import NOISE, assert_metrics_close, is_on_a_knife_edge
from tests.reference.metric_values import TOKEN, config_of, metrics_of, update, values

LEVELS = ("token", "sequence", "geometric")


def random_batch(rows: int = 6, length: int = 9) -> Batch:
    generator = torch.Generator().manual_seed(rows)
    rollout = -torch.rand(rows, length, generator=generator, dtype=torch.float64)
    old = rollout + 0.3 * torch.randn(rows, length, generator=generator, dtype=torch.float64)
    mask = (torch.rand(rows, length, generator=generator) < 0.7).double()
    mask[0] = 0.0
    return Batch(old.tolist(), rollout.tolist(), mask.tolist())


def select(batch: Batch, rows: list[int]) -> Batch:
    return Batch(*([field[row] for row in rows] for field in batch))


@runs(max_examples=60, deadline=None)
@given(data=st.data(), batch=strategies.batches(), settings=strategies.settings())
def test_any_partition_and_merge_equals_the_whole(data: st.DataObject, batch: Batch, settings: dict[str, Any]) -> None:
    # Rounding alone must not decide on which side of a threshold a token is counted.
    assume(not is_on_a_knife_edge(batch, settings, NOISE[torch.float64]))
    parts = data.draw(strategies.partitions(len(batch.mask)))
    metrics = [RolloutISMetrics(config_of(settings)) for _ in range(2)]
    for part in range(3):
        rows = [index for index, chosen in enumerate(parts) if chosen == part]
        if rows:
            layout = data.draw(st.sampled_from(LAYOUTS))
            update(metrics[part % 2], lay_out(select(batch, rows), layout))
    metrics[0].merge_state(metrics[1])
    expected = oracle.metrics(*batch, **settings)
    assert_metrics_close(values(metrics[0]), expected, batch, settings, NOISE[torch.float64])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_micro_batches_of_any_size(level: str, layout: str) -> None:
    batch = random_batch(8)
    whole = metrics_of([lay_out(batch, layout)], level=level)
    for size in (1, 2, 5):
        pieces = [select(batch, list(range(8))[start : start + size]) for start in range(0, 8, size)]
        split = metrics_of([lay_out(piece, layout) for piece in pieces], level=level)
        assert split == pytest.approx(whole, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("level", LEVELS)
def test_order_of_rows_and_padding_side(level: str) -> None:
    batch = random_batch(8)
    expected = metrics_of([lay_out(batch)], level=level)
    shuffled = select(batch, [5, 2, 7, 0, 1, 6, 3, 4])
    for layout in LAYOUTS:
        computed = metrics_of([lay_out(shuffled, layout, width=20)], level=level)
        assert computed == pytest.approx(expected, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_sequences_without_a_token_change_nothing(level: str, layout: str) -> None:
    batch = random_batch(8)
    empty = Batch([[-3.0, -9.0], []], [[-0.1, -0.2], []], [[0.0, 0.0], []])
    appended = Batch(*(rows + more for rows, more in zip(batch, empty, strict=True)))
    expected = metrics_of([lay_out(batch, layout)], level=level)
    assert metrics_of([lay_out(appended, layout)], level=level) == pytest.approx(expected, rel=1e-14, abs=1e-16)
    assert metrics_of([lay_out(batch, layout), lay_out(empty, layout)], level=level) == expected


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30, -9999.0])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_outside_the_mask_is_seen(level: str, layout: str, junk: float) -> None:
    clean = lay_out(random_batch(), layout, width=12)
    outside = clean.mask == 0
    expected = metrics_of([clean], level=level)
    for old, rollout in ((junk, junk), (junk, -1.0), (-1.0, junk), (math.inf, -math.inf)):
        dirty = clean._replace(
            old=clean.old.masked_fill(outside, old), rollout=clean.rollout.masked_fill(outside, rollout)
        )
        assert metrics_of([dirty], level=level) == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("level", LEVELS)
def test_equal_policies_show_exactly_no_mismatch(level: str, dtype: torch.dtype) -> None:
    batch = random_batch(8)
    same = lay_out(Batch(batch.old, batch.old, batch.mask), old_dtype=dtype)
    computed = metrics_of([same, same], level=level, upper=1.0002)
    for name, value in computed.items():
        if "training" not in name and "mismatch_rollout" not in name:
            assert value == (1.0 if is_one_without_mismatch(name) else 0.0), name
    assert computed["mismatch_training_ppl"] == computed["mismatch_rollout_ppl"]


def is_one_without_mismatch(name: str) -> bool:
    return name.endswith(("_mean", "_min", "_max", "eff_sample_size", "ppl_ratio")) and "diff" not in name


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_levels_agree_on_sequences_of_one_token(mode: str) -> None:
    ratios = lay_out(batch_of_ratios([[1e-3], [0.4], [0.9], [1.0], [1.2], [2.5], [900.0]]))
    token, sequence, geometric = (metrics_of([ratios], level=level, mode=mode) for level in LEVELS)
    assert sequence == pytest.approx(token, rel=1e-13)
    assert geometric == pytest.approx(token, rel=1e-13)


def pair() -> tuple[RolloutISMetrics, RolloutISMetrics, Tensors]:
    first, second = (RolloutISMetrics(config_of(TOKEN)) for _ in range(2))
    update(first, lay_out(batch_of_ratios([[1.0, 1.0]])))
    tensors = lay_out(batch_of_ratios([[1.5, 1.5]]))
    update(second, tensors)
    return first, second, tensors


def test_merge_after_compute_shows_in_the_next_compute() -> None:
    first, second, _ = pair()
    assert values(first)["rollout_is_mean"] == 1.0
    first.merge_state(second)
    assert values(first)["rollout_is_mean"] == pytest.approx(1.25)


def test_merge_into_a_metric_without_data() -> None:
    _, second, _ = pair()
    fresh = RolloutISMetrics(config_of(TOKEN))
    fresh.merge_state(second)
    assert values(fresh) == values(second)


def test_merge_leaves_the_other_metric_alone() -> None:
    first, second, tensors = pair()
    before = values(second)
    first.merge_state(second)
    first.merge_state(copy.deepcopy(second))
    update(first, tensors)
    assert values(first)["rollout_is_mean"] == pytest.approx((2.0 + 3 * 3.0) / 8)
    assert values(second) == before


@pytest.mark.parametrize("option", [{"level": "sequence"}, {"mode": "truncate"}, {"upper": 3.0}, {"veto": None}])
def test_merge_of_different_settings_is_refused(option: dict[str, Any]) -> None:
    first, other = RolloutISMetrics(config_of(TOKEN)), RolloutISMetrics(config_of(TOKEN | option))
    update(other, lay_out(batch_of_ratios([[1.5]])))
    with pytest.raises(ValueError, match="cannot merge"):
        first.merge_state(other)
