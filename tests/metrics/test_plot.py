"""``plot()`` as torchmetrics has it, on the ranges of this package."""

import math
import sys

import matplotlib
import pytest
import torch
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from torchmetrics import MetricCollection

from lightning_rollout_is import EffectiveSampleSize, ImportanceWeightMean, RolloutISMetrics, RolloutKL, VetoFraction
from lightning_rollout_is.healthy_ranges import GRADE_COLORS, RANGES

CONFIG = {"rollout_is_threshold": 2.0}
OLD, ROLLOUT, MASK = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.5]]), torch.ones(1, 2)


@pytest.fixture(autouse=True)
def without_a_display():
    before = matplotlib.get_backend()
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(before)


def after_one_batch(kind, **settings):
    metric = kind(CONFIG, **settings)
    metric.update(OLD, ROLLOUT, MASK)
    return metric


def curve(axes):
    return [float(number) for number in axes.lines[0].get_ydata()]


def bands(axes):
    """Bottom, top and colour of each band."""
    return [(band.get_y(), band.get_y() + band.get_height(), band.get_facecolor()[:3]) for band in axes.patches]


def scalars(*numbers):
    return [torch.tensor(number, dtype=torch.float64) for number in numbers]


def test_without_a_value_it_computes_one():
    figure, axes = after_one_batch(ImportanceWeightMean).plot()
    assert curve(axes) == pytest.approx([math.exp(0.5)])
    assert axes.get_figure() is figure
    assert axes.get_ylabel() == "ImportanceWeightMean"


def test_one_value_or_one_a_step():
    metric = EffectiveSampleSize(CONFIG)
    assert curve(metric.plot(torch.tensor(0.25))[1]) == [0.25]
    assert curve(metric.plot(scalars(0.9, 0.5, 0.25))[1]) == [0.9, 0.5, 0.25]
    assert curve(metric.plot([metric(OLD, ROLLOUT, MASK), metric.compute()])[1]) == pytest.approx([1.0, 1.0])


def test_it_draws_where_asked():
    own, wanted = pyplot.subplots()
    figure, axes = VetoFraction(CONFIG).plot(scalars(0.0, 0.2), wanted)
    assert (figure, axes) == (own, wanted)
    assert len(pyplot.get_fignums()) == 1


def test_the_bands_are_those_of_the_range():
    axes = EffectiveSampleSize(CONFIG).plot(scalars(0.9, 0.5))[1]
    low, high = axes.get_ylim()
    assert bands(axes) == [
        (low, pytest.approx(0.3), to_rgb(GRADE_COLORS["unhealthy"])),
        (pytest.approx(0.3), pytest.approx(0.5), to_rgb(GRADE_COLORS["watch"])),
        (pytest.approx(0.5), pytest.approx(high), to_rgb(GRADE_COLORS["healthy"])),
    ]
    assert axes.get_legend().get_texts()[0].get_text() == "healthy: 0.5 or more"


@pytest.mark.parametrize(("estimator", "limits"), [("k1", "-0.01 to 0.01"), ("k3", "0.0005 or less")])
def test_a_kl_has_the_range_of_its_estimator(estimator, limits):
    axes = RolloutKL(CONFIG, estimator=estimator).plot(scalars(0.5, 0.6))[1]
    assert axes.get_legend().get_texts()[0].get_text() == f"healthy: {limits}"


def test_what_is_healthy_can_be_seen_however_far_off_the_values_are():
    low, high = RolloutKL(CONFIG, estimator="k1").plot(scalars(-3.0, -4.0))[1].get_ylim()
    assert low < -4.0
    assert high > 0.01


def test_bounds_are_what_the_values_can_reach():
    low, high = EffectiveSampleSize(CONFIG).plot(scalars(0.9, 0.8))[1].get_ylim()
    assert (low, high) == pytest.approx((-0.1, 1.1))


def test_a_collection_plots_each():
    metrics = MetricCollection([EffectiveSampleSize(CONFIG), VetoFraction(CONFIG)])
    drawn = metrics.plot([metrics(OLD, ROLLOUT, MASK), metrics(ROLLOUT, OLD, MASK)])
    assert sorted(axes.get_ylabel() for _, axes in drawn) == ["EffectiveSampleSize", "VetoFraction"]
    assert all(len(axes.lines[0].get_ydata()) == 2 for _, axes in drawn)


def grades_of(axes):
    """The row of grades of each statistic, by its label."""
    (image,) = axes.images
    labels = [label.get_text() for label in axes.get_yticklabels()]
    names = [*GRADE_COLORS]
    rows = [
        [None if math.isnan(number) else names[int(number)] for number in row]
        for row in image.get_array().filled(math.nan)
    ]
    return dict(zip(labels, rows, strict=True))


def point(**values):
    return {f"mismatch/{name}": torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def test_all_statistics_that_have_a_range_are_rows():
    metric = after_one_batch(RolloutISMetrics, details=True)
    figure, axes = metric.plot()
    computed = {name.removeprefix("mismatch/") for name, value in metric.compute().items() if value.isfinite()}
    assert set(grades_of(axes)) == {RANGES[name].label for name in computed & set(RANGES) if RANGES[name].limits()}
    assert grades_of(axes)["Importance weight, mean"] == ["watch"]
    assert axes.get_figure() is figure


def test_steps_are_columns_in_the_colour_of_their_grade():
    steps = [point(rollout_is_eff_sample_size=value, rollout_is_veto_fraction=0.0) for value in (0.9, 0.4, 0.1)]
    axes = RolloutISMetrics(CONFIG).plot(steps)[1]
    assert grades_of(axes) == {
        RANGES["rollout_is_eff_sample_size"].label: ["healthy", "watch", "unhealthy"],
        RANGES["rollout_is_veto_fraction"].label: ["healthy"] * 3,
    }
    shown = axes.images[0].cmap(axes.images[0].norm([0.0, 1.0, 2.0]))[:, :3]
    assert [tuple(color) for color in shown] == [to_rgb(color) for color in GRADE_COLORS.values()]


def test_the_last_values_stand_at_the_right():
    axes = RolloutISMetrics(CONFIG).plot([point(rollout_is_mean=1.0), point(rollout_is_mean=1.5)])[1]
    (right,) = axes.child_axes
    assert [label.get_text() for label in right.get_yticklabels()] == ["1.5  (healthy: 0.8 to 1.25)"]


def test_what_is_missing_at_a_step_has_no_colour():
    steps = [point(rollout_is_mean=1.0), point(rollout_is_mean=math.nan), point(mismatch_kl=0.0)]
    axes = RolloutISMetrics(CONFIG).plot(steps)[1]
    assert grades_of(axes) == {
        RANGES["mismatch_kl"].label: [None, None, "healthy"],
        RANGES["rollout_is_mean"].label: ["healthy", None, None],
    }


def test_another_prefix():
    metric = after_one_batch(RolloutISMetrics, prefix="is/")
    assert RANGES["rollout_is_mean"].label in grades_of(metric.plot()[1])


def test_all_of_it_in_axes_that_are_given():
    own, wanted = pyplot.subplots()
    assert after_one_batch(RolloutISMetrics).plot(ax=wanted) == (own, wanted)
    assert len(pyplot.get_fignums()) == 1


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match=r"no finite value under names such as mismatch/rollout_is_mean; give what"):
        RolloutISMetrics(CONFIG).plot({"loss": torch.tensor(1.0)})


@pytest.mark.parametrize("kind", [RolloutISMetrics, VetoFraction])
def test_without_matplotlib_it_says_what_to_install(kind, monkeypatch):
    metric = after_one_batch(kind)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'lightning-rollout-is\[plots\]'"):
        metric.plot()
