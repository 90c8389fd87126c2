"""TensorBoard in a real browser: what the callback writes is drawn, with nothing but ``tensorboard --logdir``."""

import pytest

from tests.trainer.boards import curves_of, layout
from tests.trainer.runs import curves

pytestmark = pytest.mark.timeout(120)

LINES, BANDS = "tf-custom-scalar-multi-line-chart-card", "tf-custom-scalar-margin-chart-card"


def run_folders(logdir):
    return sorted({file.parent for file in logdir.rglob("*tfevents*")})


def test_the_page_of_charts_is_drawn(page, tensorboard, logdir):
    runs = run_folders(logdir)
    charts = [chart for category in layout(runs[0]).values() for chart in category]
    lines, bands = (sum(bool(curves_of(chart)[kind]) for chart in charts) for kind in (0, 1))
    page.open(f"{tensorboard}/#custom_scalars&_smoothingWeight=0")
    page.until(lambda: len(page.elements(LINES)) == lines and len(page.elements(BANDS)) == bands, "all charts")
    page.until(lambda: all(page.lines(card) for card in page.elements(f"{LINES}, {BANDS}")), "a curve in each chart")
    assert {"Rollout importance sampling", "Rollout importance sampling, details"} <= {
        text.split("\n")[0].strip() for text in page.texts("button.heading")
    }
    # The shade of each band of each run, and the curve in its middle.
    assert all(page.lines(card) >= 2 * len(runs) for card in page.elements(BANDS))
    assert page.picture("tensorboard") > 50_000


def test_scalars_are_drawn(page, tensorboard, logdir):
    tag = "mismatch/mismatch_k3_kl"
    assert all(tag in curves(folder) for folder in run_folders(logdir))
    page.open(f"{tensorboard}/#scalars&tagFilter={tag}%24&_smoothingWeight=0")
    cards = page.until(lambda: page.elements("tf-scalar-card"), "a chart")
    page.until(lambda: page.lines(cards[0]) >= len(run_folders(logdir)), "a curve of each run")
    page.picture("tensorboard-scalars")


def test_histograms_are_drawn(page, tensorboard, logdir):
    page.open(f"{tensorboard}/#histograms")
    wanted = 2 * len(run_folders(logdir))
    page.until(lambda: len(page.elements("vz-histogram-timeseries")) == wanted, "log ratio and weight of each run")
    page.until(lambda: all(page.lines(card) >= 2 for card in page.elements("vz-histogram-timeseries")), "their steps")
    page.picture("tensorboard-histograms")


def test_the_text_says_what_is_wrong_and_what_was_set(page, tensorboard):
    page.open(f"{tensorboard}/#text")
    page.until(lambda: [text for text in page.texts("h3") if text.startswith("Healthy at step")], "a sound run")
    sick = ("To watch at step", "Unhealthy at step")
    page.until(lambda: [text for text in page.texts("h3") if text.startswith(sick)], "a sick run")
    page.until(lambda: "algorithm.rollout_is_threshold" in page.texts("td"), "settings")
    cells = page.texts("td")
    assert cells[cells.index("algorithm.rollout_is_threshold") + 1] == "2.0"
    reasons = [text for text in page.texts("li") if "K3" in text]
    assert reasons
    assert all("since step 0" in text for text in reasons)
    page.picture("tensorboard-text")


def test_hyperparameters_are_listed(page, tensorboard):
    page.open(f"{tensorboard}/#hparams")
    page.until(
        lambda: "algorithm.rollout_is_level" in " ".join(page.texts("div, span, vaadin-grid-cell-content")), "the block"
    )
    page.picture("tensorboard-hparams")
