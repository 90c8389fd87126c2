"""First, worst and last value of a curve."""

import math

import pytest

from lightning_rollout_is.event_files import Curve
from lightning_rollout_is.healthy_ranges import RANGES
from lightning_rollout_is.report.values import Cell, all_values, summary, telling_values
from tests.report.written import run_of


def test_ends_are_averaged_and_the_worst_is_one_point():
    values = [1.0, 0.9, 0.9, 0.9, 0.9, 0.1, 0.5, 0.5, 0.5, 0.5, 0.6]
    three = summary(Curve(range(100, 111), values), RANGES["rollout_is_eff_sample_size"])
    assert three.first.value == pytest.approx(0.92)
    assert three.worst == Cell(0.1, "unhealthy", 105)
    assert three.last.value == pytest.approx(0.52)
    assert (three.smallest.value, three.largest.value, three.points) == (0.1, 1.0, 11)


def test_the_worst_of_a_ratio_lies_on_either_side():
    assert summary(Curve([0, 1, 2], [1.0, 0.4, 2.2]), RANGES["rollout_is_mean"]).worst.step == 1
    assert summary(Curve([0, 1, 2], [1.0, 0.5, 2.2]), RANGES["rollout_is_mean"]).worst.step == 2


def test_without_an_ideal_the_worst_is_the_farthest_from_the_beginning():
    assert summary(Curve(range(7), [0.4, 0.4, 0.4, 0.4, 0.4, 0.9, 0.1])).worst.step == 5


def test_what_is_no_number_is_left_out():
    assert summary(Curve([0, 1], [math.nan, 0.5])).points == 1
    assert summary(Curve([0, 1], [math.nan, math.inf])) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (1e-13, "1e-13"),
        (0.00012345, "0.00012"),
        (4.85165195e8, "4.852e+08"),
        (-0.0005, "-0.0005"),
    ],
)
def test_numbers_are_short(value, text):
    assert Cell(value).text == text


def test_runs_stand_side_by_side_and_what_none_has_is_left_out(tmp_path):
    runs = [run_of(tmp_path / "a"), run_of(tmp_path / "b", rollout_is_masked_fraction=0.5)]
    rows = telling_values(runs)
    masked = RANGES["rollout_is_masked_fraction"].label
    assert rows[masked][0] is None
    assert rows[masked][1].last == Cell(0.5, "unhealthy")
    assert RANGES["rollout_is_ratio_fraction_high"].label not in rows


def test_every_curve_is_in_the_full_table(tmp_path):
    run = run_of(tmp_path, prefix="is/", other=3.0)
    assert set(all_values(run)) == set(run.curves)
    assert all_values(run)["is/rollout_is_mean"].last.grade == "healthy"
    assert all_values(run)["is/other"].last.grade is None
