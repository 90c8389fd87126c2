"""Bands of standard errors, percentiles, the profile along the response, and groups."""

import math

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from lightning_rollout_is import plot_rollout_is
from lightning_rollout_is.event_files import Curve
from lightning_rollout_is.plots import DETAILS, PANELS
from lightning_rollout_is.plots.style import COLORS, envelope
from tests.report.written import DETAILS as WRITTEN
from tests.report.written import SOUND, groups, write_run


def history(length=3, **changed):
    """A sound run with details, of which some values are a number or a list."""
    values = {**SOUND, **WRITTEN, **changed}
    return {
        f"mismatch/{name}": [value] * length if not isinstance(value, list) else value for name, value in values.items()
    }


def plot(figure, title):
    (axes,) = [axes for axes in figure.axes if axes.get_title() == title]
    return axes


def drawn(title, runs):
    """One plot of several runs, each a mapping of metric to values."""
    axes = Figure().add_subplot()
    (wanted,) = [one for one in (*PANELS, *DETAILS) if one.title == title]
    wanted.draw(
        axes,
        {
            run: {name: Curve(range(len(values)), values) for name, values in of_run.items()}
            for run, of_run in runs.items()
        },
    )
    return axes


def fills(axes):
    """Bottom and top of each filled band over the steps, with its label."""
    found = [shape for shape in axes.collections if isinstance(shape, PolyCollection)]
    return {shape.get_label(): shape.get_paths()[0].get_extents() for shape in found}


def lines(axes):
    return {line.get_label(): list(line.get_ydata()) for line in axes.lines}


FAN, PROFILE = "Log ratio of the tokens, percentiles", "Mismatch along the response"


def test_the_first_eight_stay_and_what_is_recorded_follows():
    titles = [axes.get_title() for axes in plot_rollout_is(history()).axes]
    assert titles[:8] == [panel.title for panel in PANELS]
    assert titles[8:] == [detail.title for detail in DETAILS[:6]]


def test_what_is_not_recorded_takes_no_room():
    assert len(plot_rollout_is({"mismatch/rollout_is_mean": [1.0]}).axes) == 8
    nine = plot_rollout_is({"mismatch/mismatch_log_ratio_p50": [0.0, 0.1]})
    assert [axes.get_title() for axes in nine.axes[8:]] == [FAN]


def test_a_standard_error_is_a_band_of_95_percent():
    axes = plot(plot_rollout_is(history(mismatch_kl=0.05, mismatch_kl_stderr=0.01)), "KL(rollout || training)")
    (band,) = fills(axes).values()
    assert (band.y0, band.y1) == pytest.approx((0.05 - 0.0196, 0.05 + 0.0196))
    assert axes.get_ylim()[1] >= band.y1
    assert "k1, 95%" in lines(axes)
    mean = plot(plot_rollout_is(history(rollout_is_mean_stderr=0.1)), "Mean importance weight")
    (band,) = fills(mean).values()
    assert (band.y0, band.y1) == pytest.approx((1 - 0.196, 1 + 0.196))


def test_a_standard_error_that_is_absent_or_no_number_is_left_out():
    without = {name: values for name, values in history().items() if not name.endswith("stderr")}
    axes = plot(plot_rollout_is(without), "KL(rollout || training)")
    assert fills(axes) == {}
    assert "k1" in lines(axes)
    gap = history(mismatch_kl=0.0, mismatch_kl_stderr=[math.nan, 0.01, 0.01])
    (band,) = fills(plot(plot_rollout_is(gap), "KL(rollout || training)")).values()
    assert (band.x0, band.x1) == (1.0, 2.0)


def test_the_fan_is_two_bands_and_a_median():
    tails = {"p01": -0.4, "p05": -0.2, "p50": 0.01, "p95": 0.1, "p99": 0.3}
    axes = plot(plot_rollout_is(history(**{f"mismatch_log_ratio_{at}": value for at, value in tails.items()})), FAN)
    bands = {label: (band.y0, band.y1) for label, band in fills(axes).items()}
    assert bands == {"1% to 99%": pytest.approx((-0.4, 0.3)), "5% to 95%": pytest.approx((-0.2, 0.1))}
    assert lines(axes)["median"] == [0.01] * 3
    low, high = axes.get_ylim()
    assert low <= -0.4 < 0.3 <= high


def test_a_fan_of_noise_stays_flat():
    tiny = {f"mismatch_log_ratio_{at}": 1e-8 for at in ("p01", "p05", "p50", "p95", "p99")}
    low, high = plot(plot_rollout_is(history(**tiny)), FAN).get_ylim()
    assert low == -0.01
    assert high >= 0.01


def test_several_runs_have_a_fan_each():
    tails = {"p01": -1.0, "p05": -0.5, "p50": 0.0, "p95": 0.5, "p99": 1.0}
    fan = {f"mismatch_log_ratio_{at}": [value] * 2 for at, value in tails.items()}
    axes = drawn(FAN, {"a": fan, "none": {}, "b": fan})
    assert [line.get_color() for line in axes.lines[:2]] == [COLORS[0], COLORS[2]]
    assert [(band.get_paths()[0].get_extents().y0) for band in axes.collections] == [-1.0, -1.0]


def test_the_profile_has_both_ends_of_the_run():
    deciles = {
        f"mismatch_abs_log_ratio_decile_{at:02d}": [at / 100] * 5 + [9.0] * 3 + [at / 10] * 5 for at in range(1, 11)
    }
    axes = plot(plot_rollout_is(history(13, **deciles)), PROFILE)
    assert lines(axes)["first steps"] == pytest.approx([at / 100 for at in range(1, 11)])
    assert lines(axes)["last steps"] == pytest.approx([at / 10 for at in range(1, 11)])
    assert list(axes.lines[0].get_xdata()) == list(range(5, 100, 10))
    assert axes.get_xlabel() == "% of the response"


def test_a_profile_may_have_gaps():
    axes = drawn(PROFILE, {"": {"mismatch_abs_log_ratio_decile_03": [0.1, math.nan, 0.3]}})
    (first, last) = (lines(axes)[label] for label in ("first steps", "last steps"))
    assert first[2] == last[2] == pytest.approx(0.2)
    assert sum(map(math.isnan, last)) == 9


def test_groups_are_drawn_on_the_bands_of_their_statistic():
    figure = plot_rollout_is(history(**groups("mismatch_k3_kl", math=0.02, code=0.001)))
    axes = plot(figure, "K3 (log scale), by group")
    assert lines(axes) == {"code": [0.001] * 3, "math": [0.02] * 3}
    assert len(axes.patches) == len(figure.axes[0].patches) == 2
    assert [axes.get_title() for axes in figure.axes[14:]] == ["K3 (log scale), by group"]


def test_a_group_has_one_colour_in_every_plot():
    worst = {**groups("mismatch_k3_kl", a=0.1, b=0.01), **groups("rollout_is_eff_sample_size", a=0.9, b=0.1)}
    figure = plot_rollout_is(history(**worst))
    colors = [
        {line.get_label(): line.get_color() for line in plot(figure, title).lines if line.get_label() in "ab"}
        for title in ("K3 (log scale), by group", "Effective sample size, by group")
    ]
    assert colors[0] == colors[1] == {"a": COLORS[0], "b": COLORS[1]}


def test_of_many_groups_the_worst_are_drawn():
    many = groups("mismatch_k3_kl", **{f"g{number:02d}": number / 1000 for number in range(20)})
    axes = plot(plot_rollout_is(history(**many)), "K3 (log scale), by group (12 of 20)")
    assert list(lines(axes)) == [f"g{number:02d}" for number in range(8, 20)]


def test_of_several_runs_the_worst_group_is_drawn():
    runs = {
        "a": {"rollout_is_mean/x": [1.0, 1.0], "rollout_is_mean/y": [1.0, 0.2]},
        "none": {},
        "b": {"rollout_is_mean/x": [1.0, 3.0]},
    }
    axes = drawn("Mean importance weight, by group", runs)
    assert axes.get_title() == "Mean importance weight, worst group"
    assert [list(line.get_ydata()) for line in axes.lines[:2]] == [[1.0, 0.2], [1.0, 3.0]]
    assert [line.get_color() for line in axes.lines[:2]] == [COLORS[0], COLORS[2]]


@pytest.mark.parametrize("detail", DETAILS, ids=lambda detail: detail.title)
def test_a_plot_of_nothing_says_so(detail):
    axes = Figure().add_subplot()
    assert not detail.recorded({})
    detail.draw(axes, {"": {}})
    assert axes.texts[0].get_text() == "not recorded"
    assert not axes.lines


def test_chi_square_may_be_negative_or_enormous():
    axes = drawn(
        "Chi-square (log scale)", {"": {"mismatch_chi2_token": [-1e-3, 0.5], "mismatch_chi2_seq": [-0.5, 1e17]}}
    )
    assert lines(axes)["tokens"] == [-1e-3, 0.5]
    assert axes.get_yscale() == "symlog"
    low, high = axes.get_ylim()
    assert low < -0.5 < 1e17 < high


def test_details_of_a_folder_are_drawn(tmp_path):
    write_run(tmp_path, length=4, **WRITTEN, **groups("mismatch_kl", math=0.02))
    assert len(plot_rollout_is(tmp_path).axes) == 8 + 6 + 1


def test_an_envelope_of_a_long_run_keeps_its_extremes():
    length = 50_000
    low, high = [0.0] * length, [1.0] * length
    low[777], high[40_001] = -9.0, 9.0
    steps, bottom, top = envelope(Curve(range(length), low), Curve(range(length), high), limit=100)
    assert len(steps) == len(bottom) == len(top) == 100
    assert (min(bottom), max(top)) == (-9.0, 9.0)
    assert bottom.index(-9.0) == 777 * 100 // length


@pytest.mark.parametrize("limit", [2, 100])
def test_an_envelope_leaves_out_what_is_no_number(limit):
    low = Curve(range(5), [math.nan, 0.0, -math.inf, -1.0, 0.0])
    high = Curve(range(5), [1.0, math.nan, 1.0, 2.0, 3.0])
    assert envelope(low, high, limit) == ([3, 4], [-1.0, 0.0], [2.0, 3.0])
