"""Every metric against the oracle, over levels, modes, layouts, dtypes and masks."""

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as runs

from lightning_rollout_is import RolloutISMetrics
from tests.reference import oracle, strategies
from tests.reference.batches import Batch, lay_out
from tests.reference.cases import CASES, Case
from tests.reference.closeness import NOISE, assert_metrics_close, computed_dtype, is_on_a_knife_edge
from tests.reference.metric_values import config_of, metrics_of, update
from tests.reference.strategies import Example


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reference_case(case: Case) -> None:
    computed = metrics_of([lay_out(Batch(*case.inputs))], **case.settings)
    assert computed.pop("rollout_is_missing_fraction") == 0.0
    assert computed == pytest.approx(case.metrics, rel=2e-6, abs=2e-7)


@runs(max_examples=250, deadline=None)
@given(example=strategies.examples(), settings=strategies.settings())
def test_all_metrics(example: Example, settings: dict[str, Any]) -> None:
    noise = NOISE[computed_dtype(example.tensors.old.dtype, example.tensors.rollout.dtype)]
    # A token that rounding alone puts on one side of a threshold may be counted on either.
    assume(not is_on_a_knife_edge(example.batch, settings, noise))
    expected = oracle.metrics(*example.batch, **settings)
    computed = metrics_of([example.tensors], **settings)
    assert_metrics_close(computed, expected, example.batch, settings, noise)


@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_names_are_those_of_the_specification(level: str, mode: str) -> None:
    batch = Batch([[-1.0]], [[-1.1]], [[1.0]])
    expected = oracle.metrics(*batch, level=level, mode=mode, upper=2.0)
    assert len(expected) == (30 if mode == "mask" else 28)
    empty = lay_out(Batch([[-1.0]], [[-1.1]], [[0.0]]))
    for tensors in (lay_out(batch), empty):
        metric = RolloutISMetrics(config_of({"level": level, "mode": mode, "upper": 2.0, "lower": None, "veto": None}))
        update(metric, tensors)
        computed = metric.compute()
        assert computed.keys() == {f"mismatch/{name}" for name in expected}
        assert all(value.dtype == torch.float64 and value.shape == () for value in computed.values())
