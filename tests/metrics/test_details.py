"""What a metric with ``details`` adds, against the oracle, over levels, modes, layouts, dtypes and masks."""

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as runs
from hypothesis import strategies as st

from lightning_rollout_is import RolloutISMetrics
from lightning_rollout_is.functional import details, tally
from lightning_rollout_is.functional.signed_log_bins import BINS, EDGES, bin_centers, bin_of
from lightning_rollout_is.functional.statistics.histogram import Histogram
from tests.reference import detail_oracle, oracle, strategies
from tests.reference.batches import LAYOUTS, Batch, Tensors, batch_of_log_ratios, lay_out
from tests.reference.closeness import NOISE, computed_dtype, is_on_a_knife_edge, log_ratios
from tests.reference.metric_values import TOKEN, config_of, update, values

LEVELS = ("token", "sequence", "geometric")


def metric_of(batches: list[Tensors], **settings: Any) -> RolloutISMetrics:
    metric = RolloutISMetrics(config_of(TOKEN | settings), details=True)
    for tensors in batches:
        update(metric, tensors)
    return metric


def computed(batches: list[Tensors], **settings: Any) -> dict[str, float]:
    """What details add."""
    plain = RolloutISMetrics(config_of(TOKEN | settings)).packing.compute(torch.zeros(99))
    return {name: value for name, value in values(metric_of(batches, **settings)).items() if name not in plain}


def histograms_of(metric: RolloutISMetrics) -> dict[str, Histogram]:
    bins = metric.bins_of(metric.packed)
    return {name: Histogram(edges, counts.tolist()) for name, (edges, counts) in bins.items()}


def sizes(batch: Batch) -> float:
    """The largest weight of a token or a sequence, at least 1: what rounding is relative to."""
    rows = log_ratios(batch)
    whole = [math.fsum(row) for row in rows]
    return math.exp(min(max([abs(value) for value in sum(rows, whole)], default=0.0), 20.0))


@runs(max_examples=100, deadline=None)
@given(example=strategies.examples(), settings=strategies.settings())
def test_values_of_any_batch(example: strategies.Example, settings: dict[str, Any]) -> None:
    noise = NOISE[computed_dtype(example.tensors.old.dtype, example.tensors.rollout.dtype)]
    assume(not is_on_a_knife_edge(example.batch, settings, noise))
    expected = detail_oracle.details(*example.batch, **settings)
    found = computed([example.tensors], **settings)
    scale = sizes(example.batch)
    raw = sorted(value for row in log_ratios(example.batch) for value in row)
    for name, value in found.items():
        if name not in expected:
            assert not math.isfinite(value), name
        elif name.startswith("mismatch_log_ratio_p"):
            exact = detail_oracle.quantile(raw, int(name[-2:]))
            if abs(exact) < 27.0:
                assert abs(value - exact) <= 0.0906 * abs(exact) + 2.0**-17 + noise, name
        elif "chi2" in name or name.endswith("stderr"):
            assert value == pytest.approx(expected[name], rel=1e-5, abs=3e-5 * noise / 1e-7 * scale**2), name
        elif "probs" in name or "decile" in name:
            assert value == pytest.approx(expected[name], rel=100 * noise, abs=100 * noise * min(scale, 1e3)), name
        else:
            assert value == pytest.approx(expected[name], rel=100 * noise, abs=1e-7), name


@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("level", LEVELS)
def test_values_and_histograms_of_a_long_batch(level: str, mode: str) -> None:
    generator = torch.Generator().manual_seed(5)
    rollout = -2.0 * torch.rand(12, 40, generator=generator, dtype=torch.float64)
    old = rollout + torch.randn(12, 40, generator=generator, dtype=torch.float64).pow(5)
    mask = (torch.rand(12, 40, generator=generator) < 0.8).double()
    rollout[3, :9] = torch.nan
    old[5, 4] = -torch.inf
    batch = Batch(old.tolist(), rollout.tolist(), mask.tolist())
    settings = TOKEN | {"level": level, "mode": mode}
    metric = metric_of([lay_out(batch, "packed")], level=level, mode=mode)
    expected = detail_oracle.details(*batch, **settings)
    assert len(expected) == (33 if "mismatch_kl_stderr" not in expected else 34)
    found = values(metric)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    histograms = histograms_of(metric)
    raw = [value for row in log_ratios(batch) for value in row]
    assert histograms["mismatch/log_ratio"].counts == detail_oracle.histogram(raw, EDGES)
    weights, sequences = oracle.weights(*batch, **settings), oracle.read_batch(*batch, level, TOKEN["veto"])
    applied = [row[token.position] for row, one in zip(weights, sequences, strict=True) for token in one.tokens]
    weight_histogram = histograms["mismatch/applied_weight"]
    assert weight_histogram.counts == detail_oracle.histogram(applied, weight_histogram.edges)
    assert weight_histogram.counts[0] >= applied.count(0.0) > 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_any_split_and_layout_is_the_whole(level: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of_log_ratios([[0.1, -2.0, 1e-4, 0.0] * 4, [0.5], [], [-0.2, 1.0] * 9, [3e-3] * 5])
    whole = metric_of([lay_out(batch)], level=level)
    monkeypatch.setattr(details, "_TOKENS_AT_ONCE", 1)
    parts = [Batch(*(rows[start : start + 2] for rows in batch)) for start in (0, 2, 4)]
    split = metric_of([lay_out(part, layout) for part in parts], level=level)
    assert values(split) == pytest.approx(values(whole), rel=1e-12, abs=1e-15, nan_ok=True)
    assert histograms_of(split) == histograms_of(whole)


def test_the_profile_counts_places_over_holes_and_missing_tokens() -> None:
    """Twenty tokens inside the mask: the first two are the first tenth, wherever they stand."""
    steps = [0.01 * (number // 2 + 1) for number in range(20)]
    mask = [1.0] * 20
    row = [*steps[:7], 9.0, *steps[7:]]
    batch = batch_of_log_ratios([row], [[*mask[:7], 0.0, *mask[7:]]])
    batch.rollout[0][0] = math.nan
    found = computed([lay_out(batch, "packed")])
    profile = [found[f"mismatch_abs_log_ratio_decile_{number:02d}"] for number in range(1, 11)]
    assert profile == pytest.approx([0.01 * number for number in range(1, 11)])


def test_malformed_masks_give_no_plausible_number() -> None:
    tensors = lay_out(batch_of_log_ratios([[0.1, 0.2], [0.3, 0.1]]))
    mask = tensors.mask.double()
    mask[0, 1] = 0.5
    found = values(metric_of([tensors._replace(mask=mask)]))
    added = [name for name in found if name.startswith("mismatch_log_ratio_p") or "decile" in name or "applied" in name]
    assert len(added) == 27
    assert all(math.isnan(found[name]) for name in added)


def test_boundaries_that_do_not_fit_give_no_plausible_number() -> None:
    tensors = lay_out(batch_of_log_ratios([[0.1, 0.2], [0.3, 0.1]]), "packed")
    found = values(metric_of([tensors._replace(cu_seqlens=torch.tensor([0, 2, 3], dtype=torch.int32))]))
    assert all(math.isnan(value) for value in found.values())


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_bins_hold_what_their_edges_say(numbers: list[float]) -> None:
    centers = bin_centers(torch.device("cpu")).tolist()
    for number, place in zip(numbers, bin_of(torch.tensor(numbers)).tolist(), strict=True):
        assert 0 <= place < BINS
        # A number of one unit in the last place beside an edge may lie on either side of it.
        slack = 4e-7 * abs(number)
        assert number >= EDGES[place] - slack or place == 0
        assert number <= EDGES[place + 1] + slack or place == BINS - 1
        if abs(number) < 32.0:
            assert abs(centers[place] - number) <= 0.0906 * abs(number) + 2.0**-17


def test_lanes_of_an_accelerator_add_up_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of_log_ratios([[0.1, -2.0, 1e-4, 0.0] * 4, [0.5]])
    whole = metric_of([lay_out(batch)])
    monkeypatch.setattr(tally, "_lanes", lambda _: 3)
    apart = metric_of([lay_out(batch)])
    assert values(apart) == pytest.approx(values(whole), rel=1e-12, nan_ok=True)
    assert histograms_of(apart) == histograms_of(whole)


@pytest.mark.parametrize("seed", range(8))
def test_one_sequence_has_no_standard_error(seed: int) -> None:
    """Rounding leaves a residual of either sign, and dividing by 0 would make infinity of it."""
    log_ratios = torch.randn(1, 7, generator=torch.Generator().manual_seed(seed)).tolist()
    found = computed([lay_out(batch_of_log_ratios(log_ratios))])
    assert math.isnan(found["mismatch_kl_stderr"])
    assert math.isnan(found["rollout_is_mean_stderr"])
