"""Filters of the sampler: off by default, exact when on, and never silent."""

import warnings

import numpy as np
import pytest

from lightning_rollout_is.engines.draw import draw
from lightning_rollout_is.engines.filters import SamplingFilters

PROBS = np.array([0.05, 0.4, 0.1, 0.25, 0.2])


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 1}, [1]),
        ({"top_k": 3}, [1, 3, 4]),
        ({"top_k": 9}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.39}, [1]),
        ({"top_p": 0.41}, [1, 3]),
        ({"top_p": 0.66}, [1, 3, 4]),
        ({"min_p": 0.2}, [1, 2, 3, 4]),
        ({"min_p": 1.0}, [1]),
        ({"top_k": 4, "min_p": 0.3}, [1, 3, 4]),
        # Of the two that top-k leaves, the first holds 0.4 / 0.65 of the mass.
        ({"top_k": 2, "top_p": 0.6}, [1]),
    ],
)
def test_what_is_kept_is_renormalised_and_the_rest_is_gone(filters, kept):
    filtered = np.exp(SamplingFilters(**filters).apply(np.log(PROBS)))
    expected = np.zeros(5)
    expected[kept] = PROBS[kept] / PROBS[kept].sum()
    np.testing.assert_allclose(filtered, expected, atol=1e-15)


def test_draws_follow_the_filtered_distribution_and_tell_its_log_prob():
    stream, filters = np.random.default_rng(0), SamplingFilters(top_k=3)
    drawn = [draw(np.log(PROBS) + 7.0, stream, filters) for _ in range(4000)]
    counts = np.bincount([token for token, _ in drawn], minlength=5)
    expected = np.array([0, 0.4, 0, 0.25, 0.2]) / 0.85
    assert counts[0] == counts[2] == 0
    np.testing.assert_allclose(counts / 4000, expected, atol=0.03)
    for token, log_prob in drawn:
        assert log_prob == pytest.approx(np.log(expected[token]))


def test_a_filter_is_announced_with_what_it_does_to_the_ratio():
    with pytest.warns(UserWarning, match=r"top_k = 40, min_p = 0\.05: .*no importance weight .*top_k = 0"):
        SamplingFilters(top_k=40, min_p=0.05).warn_of_ratio()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SamplingFilters().warn_of_ratio()


def test_the_mean_weight_is_the_mass_inside_the_filter():
    """What the warning says, on the exact distribution: E[pi / mu] = pi(S), and the KL grows by -log p(S)."""
    filtered = SamplingFilters(top_k=3).apply(np.log(PROBS))
    inside = np.isfinite(filtered)
    ratio, mu = PROBS[inside] / np.exp(filtered[inside]), np.exp(filtered[inside])
    assert (mu * ratio).sum() == pytest.approx(0.85)
    assert -(mu * np.log(ratio)).sum() == pytest.approx(-np.log(0.85))


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"top_k": -1}, r"top_k = -1 is not allowed; allowed: 0 \(off\)"),
        ({"top_p": 1.5}, r"top_p = 1\.5 .*above 0, up to 1"),
        ({"min_p": -0.1}, r"min_p = -0\.1 .*up to 1"),
    ],
)
def test_values_outside_the_range_are_refused(filters, message):
    with pytest.raises(ValueError, match=message):
        SamplingFilters(**filters)
