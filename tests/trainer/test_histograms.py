"""Distributions in TensorBoard: at which points, and what is drawn of them."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_rollout_is import RolloutISCallback
from lightning_rollout_is.callbacks.histograms import readable
from lightning_rollout_is.functional.statistics.histogram import Histogram
from tests.trainer.boards import histograms
from tests.trainer.late import LateCallback
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import fit

BATCHES = [rollout_batch(seed) for seed in range(12)]
TAGS = {"mismatch/log_ratio", "mismatch/applied_weight"}


@pytest.mark.parametrize("source", [RolloutISCallback, LateCallback])
@pytest.mark.parametrize(
    ("every", "steps"), [(1, list(range(12))), (5, [0, 4, 9, 11]), (6, [0, 5, 11]), (50, [0, 11]), (0, None)]
)
def test_the_first_point_every_nth_and_the_last(tmp_path, source, every, steps):
    fit(Policy(), BATCHES, tmp_path, callbacks=[source(histogram_every_n_steps=every)])
    written = histograms(tmp_path)
    assert {tag: [step for step, _ in points] for tag, points in written.items()} == (
        {} if steps is None else dict.fromkeys(TAGS, steps)
    )


def test_points_of_their_own_interval(tmp_path):
    fit(Policy(), BATCHES, tmp_path, callbacks=[RolloutISCallback(every_n_steps=3, histogram_every_n_steps=4)])
    assert [step for step, _ in histograms(tmp_path)["mismatch/log_ratio"]] == [2, 5, 8, 11]


def test_each_counts_the_valid_tokens_of_its_own_step(tmp_path):
    fit(Policy(), BATCHES, tmp_path, callbacks=[LateCallback(prefix="is/", histogram_every_n_steps=3)])
    written = histograms(tmp_path)
    assert set(written) == {"is/log_ratio", "is/applied_weight"}
    for points in written.values():
        for step, histogram in points:
            assert histogram.num == BATCHES[step]["response_mask"].sum().item()
            assert sum(histogram.bucket) == histogram.num
            assert histogram.min < histogram.max == histogram.bucket_limit[-1]


def test_a_second_fit_begins_again(tmp_path):
    callback = RolloutISCallback()
    for name in ("first", "second"):
        fit(Policy(), BATCHES[:4], tmp_path / name, callbacks=[callback])
        assert [step for step, _ in histograms(tmp_path / name)["mismatch/log_ratio"]] == [0, 3]


def test_a_negative_interval_is_refused():
    with pytest.raises(ValueError, match="histogram_every_n_steps = -1 is not allowed; allowed: 0 or more"):
        RolloutISCallback(histogram_every_n_steps=-1)


COUNTS = st.lists(st.sampled_from([0.0, 0.0, 1.0]) | st.integers(0, 1000).map(float), min_size=1, max_size=40)


@given(COUNTS, st.sampled_from([0.0, 0.01]), st.sampled_from([0.0, 3.0]), st.booleans())
def test_what_is_drawn_has_every_count_in_some_of_the_bins(counts, tail, width, endless):
    edges = [float(place) for place in range(len(counts) + 1)]
    if endless and len(counts) > 1:
        edges[0], edges[-1] = -math.inf, math.inf
    drawn = readable(Histogram(edges, counts), tail, width)
    if not sum(counts):
        assert drawn == Histogram((), ())
        return
    assert len(drawn.edges) == len(drawn.counts) + 1
    assert all(low < high for low, high in pairwise(drawn.edges))
    assert all(map(math.isfinite, drawn.edges))
    assert sum(drawn.counts) == sum(counts)
    first = int(drawn.edges[0])
    inside = counts[first : first + len(drawn.counts)]
    assert sum(counts) - sum(inside) <= 2 * tail * sum(counts)
    assert list(drawn.counts[1:-1]) == inside[1:-1] or width
    if not width:
        assert drawn.counts[0] > 0
        assert drawn.counts[-1] > 0
    else:
        assert drawn.edges[-1] - drawn.edges[0] >= min(width, len(counts))
