"""The figure shows what the history holds."""

import math

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lightning_rollout_is import plot_rollout_is
from lightning_rollout_is.event_files import Curve
from lightning_rollout_is.healthy_ranges import GRADE_COLORS
from lightning_rollout_is.plots import PANELS
from lightning_rollout_is.plots.panel import FLOOR
from lightning_rollout_is.plots.style import POINTS_DRAWN, thinned
from tests.report.written import write_run

HISTORY = {
    "mismatch/rollout_is_mean": [1.0, 1.2, 0.9],
    "mismatch/rollout_is_eff_sample_size": [0.9, 0.8, 0.7],
    "mismatch/rollout_is_veto_fraction": [0.0, 0.1, 0.0],
    "mismatch/mismatch_kl": [0.0, 0.02, 0.01],
    "mismatch/mismatch_k3_kl": [0.01, 0.03, 0.02],
    "mismatch/mismatch_ppl_ratio": [1.0, 1.01, 1.02],
}


def drawn(figure):
    """Title of each plot, and its solid lines."""
    return {
        axes.get_title(): {
            line.get_label(): list(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "-"
        }
        for axes in figure.axes
    }


def mean_weight(figure):
    (axes,) = [axes for axes in figure.axes if axes.get_title() == "Mean importance weight"]
    return axes


def test_each_curve_is_drawn_where_it_belongs():
    plots = drawn(plot_rollout_is(HISTORY))
    assert plots["Mean importance weight"] == {"mean": [1.0, 1.2, 0.9]}
    assert plots["KL(rollout || training)"] == {"k1": [0.0, 0.02, 0.01], "k3": [0.01, 0.03, 0.02]}
    assert plots["Perplexity, training / rollout"] == {"ratio": [1.0, 1.01, 1.02]}


def test_nothing_masked_is_said_rather_than_drawn():
    (axes,) = [axes for axes in plot_rollout_is(HISTORY).axes if axes.get_title() == "Masked by the bounds"]
    assert not axes.lines
    assert "truncate" in axes.texts[0].get_text()
    masked = {**HISTORY, "mismatch/rollout_is_masked_fraction": [0.1, 0.2, 0.4]}
    assert drawn(plot_rollout_is(masked))["Masked by the bounds"] == {"tokens": [0.1, 0.2, 0.4]}


def test_prefix_and_steps_are_the_users():
    history = {name.replace("mismatch/", "is/", 1): values for name, values in HISTORY.items()}
    figure = plot_rollout_is(history, prefix="is/", steps=[10, 20, 30])
    assert list(mean_weight(figure).lines[0].get_xdata()) == [10, 20, 30]


def test_it_is_saved_where_asked(tmp_path):
    plot_rollout_is(HISTORY, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_history_of_other_names_is_refused():
    with pytest.raises(ValueError, match=r"history holds \['loss'\], none of which is drawn; give names such as"):
        plot_rollout_is({"loss": [1.0]})


def test_a_folder_is_drawn_at_its_steps(tmp_path):
    write_run(tmp_path, start=7, length=3, rollout_is_mean=lambda step: step / 8)
    (line, _) = mean_weight(plot_rollout_is(tmp_path)).lines
    assert list(line.get_xdata()) == [7, 8, 9]
    assert list(line.get_ydata()) == [7 / 8, 1.0, 9 / 8]
    assert mean_weight(plot_rollout_is(str(tmp_path))).lines


def test_a_folder_has_steps_of_its_own(tmp_path):
    with pytest.raises(ValueError, match="steps were given along with the folder"):
        plot_rollout_is(tmp_path, steps=[1])
    with pytest.raises(FileNotFoundError, match="no TensorBoard event file"):
        plot_rollout_is(tmp_path)


def test_bands_tile_the_axis_and_are_coloured_by_the_ranges():
    axes = mean_weight(plot_rollout_is({"mismatch/rollout_is_mean": [0.1, 3.0]}))
    low, high = axes.get_ylim()
    assert low < 0.1 < 3.0 < high
    edges = [(band.get_y(), band.get_y() + band.get_height(), band.get_facecolor()[:3]) for band in axes.patches]
    grades = ["unhealthy", "watch", "healthy", "watch", "unhealthy"]
    assert [edge[:2] for edge in edges] == [
        pytest.approx(pair) for pair in [(low, 0.5), (0.5, 0.8), (0.8, 1.25), (1.25, 2.0), (2.0, high)]
    ]
    assert [edge[2] for edge in edges] == [to_rgb(GRADE_COLORS[grade]) for grade in grades]


def test_noise_does_not_fill_the_plot():
    axes = mean_weight(plot_rollout_is({"mismatch/rollout_is_mean": [1.0, 1.0 + 1e-7]}))
    assert axes.get_ylim() == (0.75, 1.35)


def test_bands_out_of_sight_are_not_drawn():
    axes = mean_weight(plot_rollout_is({"mismatch/rollout_is_mean": [1.0]}))
    assert all(band.get_height() > 0 for band in axes.patches)
    assert len(axes.patches) == 3


def test_a_k3_of_zero_lies_at_the_foot_of_its_axis():
    axes = plot_rollout_is({"mismatch/mismatch_k3_kl": [0.0, 1e-3]}).axes[0]
    assert axes.get_yscale() == "log"
    assert list(axes.lines[0].get_ydata()) == [FLOOR, 1e-3]
    assert axes.get_ylim()[0] < FLOOR


def test_gaps_are_drawn_as_gaps():
    (line, _) = mean_weight(plot_rollout_is({"mismatch/rollout_is_mean": [1.0, math.nan, math.inf, 1.0]})).lines
    assert math.isnan(line.get_ydata()[1])


def test_one_point_can_be_seen():
    assert mean_weight(plot_rollout_is({"mismatch/rollout_is_mean": [1.0]})).lines[0].get_marker() == "o"


def test_several_runs_have_a_colour_each_and_their_first_curve():
    runs = {str(run): {name: Curve([0, 1], [0.1, 0.2]) for name in PANELS[-1].curves} for run in range(7)}
    axes = Figure().add_subplot()
    PANELS[-1].draw(axes, runs)
    curves = axes.lines[:7]
    assert len(axes.lines) == 7 + 1  # the ideal
    assert len({(line.get_color(), line.get_linestyle()) for line in curves}) == 7
    assert axes.get_legend() is None


def test_a_long_curve_is_thinned_and_keeps_its_peaks():
    values = [0.0] * 100_000
    values[777], values[88_888] = 9.0, -9.0
    values[5000], values[5007] = math.nan, 7.0  # a stretch that begins with a gap
    shown = thinned(Curve(range(100_000), values))
    assert len(shown.steps) <= POINTS_DRAWN
    assert list(shown.steps) == sorted(shown.steps)
    kept = dict(zip(shown.steps, shown.values, strict=True))
    assert (kept[777], kept[88_888], kept[5007]) == (9.0, -9.0, 7.0)
    assert (shown.steps[0], shown.steps[-1]) == (0, pytest.approx(99_999, abs=2 * 100_000 / POINTS_DRAWN))


def test_a_short_curve_stays_as_it_is():
    curve = Curve(range(POINTS_DRAWN), [0.0] * POINTS_DRAWN)
    assert thinned(curve) is curve
