"""The oracle itself against the numbers that the reference implementation computed."""

import math

import pytest

from tests.reference import oracle
from tests.reference.cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_weights_of_reference_case(case: Case) -> None:
    computed = oracle.weights(*case.inputs, **case.settings)
    for computed_row, expected_row in zip(computed, case.weights, strict=True):
        assert computed_row == pytest.approx(expected_row, rel=2e-6, abs=2e-7)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_metrics_of_reference_case(case: Case) -> None:
    computed = oracle.metrics(*case.inputs, **case.settings)
    assert computed.pop("rollout_is_missing_fraction") == 0.0
    assert computed == pytest.approx(case.metrics, rel=2e-6, abs=2e-7)
    assert len(computed) == (29 if case.settings["mode"] == "mask" else 27)


def test_no_reference_case_touches_a_decision() -> None:
    """Empty rows, missing tokens and exponents beyond 20 are where the specification departs from the reference."""
    for case in CASES:
        for old, rollout, mask in zip(*case.inputs, strict=True):
            tokens = oracle.read_tokens(old, rollout, mask)
            assert len(tokens) == sum(mask) > 0
            assert all(math.fabs(token.log_ratio) <= 20.0 for token in tokens)
            assert abs(oracle.mean([token.old for token in tokens])) <= 20.0
