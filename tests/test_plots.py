"""The figure shows what the history holds."""

import pytest

from lightning_rollout_is import plot_rollout_is

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
    assert list(figure.axes[0].lines[0].get_xdata()) == [10, 20, 30]


def test_it_is_saved_where_asked(tmp_path):
    plot_rollout_is(HISTORY, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_history_of_other_names_is_refused():
    with pytest.raises(ValueError, match=r"history holds \['loss'\], none of which is drawn; give names such as"):
        plot_rollout_is({"loss": [1.0]})
