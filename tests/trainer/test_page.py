"""The page of charts in TensorBoard: which there are, and that each of their curves is there to be drawn."""

import csv

import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from lightning_rollout_is import RolloutISCallback
from lightning_rollout_is.callbacks.charts import DETAILS, LIMIT, OVERVIEW, Bands
from lightning_rollout_is.callbacks.limits import LIMITS
from tests.trainer.boards import curves_of, drawn_in, layout, texts
from tests.trainer.late import LateCallback
from tests.trainer.policy import ALGORITHM, Policy, rollout_batch
from tests.trainer.runs import curves, fit

BATCHES = [rollout_batch(seed) for seed in range(4)]
TRUNCATE = {**ALGORITHM, "rollout_is_mode": "truncate"}
TITLE = "Rollout importance sampling"


class PolicyWithoutDetails(Policy):
    def configure_rollout_is(self, algorithm):
        super().configure_rollout_is(algorithm, details=False)


class PolicyWithGroups(Policy):
    def configure_rollout_is(self, algorithm):
        super().configure_rollout_is(algorithm, groups=["math", "code"])

    def rollout_is_loss(self, *batch):
        return super().rollout_is_loss(*batch, groups=["math", "code", "math"])


def chart(folder, words, category=TITLE):
    return next(chart for chart in layout(folder)[category] if words in chart.title)


@pytest.mark.parametrize("source", [RolloutISCallback, LateCallback])
@pytest.mark.parametrize("module", [Policy, lambda: Policy(TRUNCATE), PolicyWithoutDetails, PolicyWithGroups])
def test_every_chart_has_its_curves_and_every_band_its_three_at_the_same_steps(tmp_path, module, source):
    undefined = {**BATCHES[1], "rollout_log_prob": BATCHES[1]["rollout_log_prob"] * float("nan")}
    with pytest.warns(UserWarning, match="no token has a usable rollout log-prob"):
        fit(module(), [BATCHES[0], undefined, *BATCHES[2:]], tmp_path, callbacks=[source()])
    written = curves(tmp_path)
    charts = [chart for category in layout(tmp_path).values() for chart in category]
    assert len(charts) >= 8
    for each in charts:
        assert drawn_in(each, written), each.title
        _, bands = curves_of(each)
        for band in bands:
            steps = [[step for step, _ in written[name]] for name in band]
            assert steps[0] == steps[1] == steps[2] != [], (each.title, band)


def test_what_healthy_means_is_drawn_beside_what_is(tmp_path):
    fit(Policy(), BATCHES, tmp_path)
    written = curves(tmp_path)

    def drawn(words, category=TITLE):
        return {tag: written[tag][-1][1] for tag in drawn_in(chart(tmp_path, words, category), written)}

    assert set(drawn("Mean weight").values()) >= {0.5, 2.0}
    assert {round(value, 6) for value in drawn("Effective sample size").values()} >= {0.5, 0.3}
    kl = drawn("KL")
    error = written["mismatch/mismatch_kl_stderr"][-1][1]
    assert error > 0
    upper = kl["mismatch_limits/mismatch_kl_plus_2_stderr"]
    assert upper == pytest.approx(kl["mismatch/mismatch_kl"] + 2 * error, rel=1e-5)
    assert kl["mismatch_limits/mismatch_kl_minus_2_stderr"] == pytest.approx(upper - 4 * error, rel=1e-4)
    fractions = {"rollout_is_veto_fraction", "rollout_is_masked_fraction", "rollout_is_missing_fraction"}
    assert {f"mismatch/{name}" for name in fractions} <= set(drawn("Vetoed"))
    fan = {f"mismatch/mismatch_log_ratio_p{percent}" for percent in ("01", "05", "50", "95", "99")}
    assert fan <= set(drawn("p5 to p95", f"{TITLE}, details"))
    assert {"mismatch/mismatch_log_ratio_p01", "mismatch/mismatch_log_ratio_p99"} <= set(drawn("Log ratio"))


def test_a_pattern_takes_in_no_longer_name(tmp_path):
    fit(Policy(), BATCHES, tmp_path)
    written = curves(tmp_path)
    assert "mismatch/rollout_is_mean_stderr" in written
    for category in layout(tmp_path).values():
        for each in category:
            patterns, _ = curves_of(each)
            assert not patterns or len(drawn_in(each, written)) <= len(patterns), each.title


def test_without_details_there_is_no_fan_and_no_profile(tmp_path):
    fit(PolicyWithoutDetails(), BATCHES, tmp_path)
    titles = [chart.title for category in layout(tmp_path).values() for chart in category]
    assert not any("Log ratio" in title or "Applied" in title for title in titles)
    assert not any("log_ratio" in tag for tag in curves(tmp_path))


def test_groups_have_charts_with_a_curve_each(tmp_path):
    fit(PolicyWithGroups(), BATCHES, tmp_path)
    kl = chart(tmp_path, "KL by group", f"{TITLE}, groups")
    assert drawn_in(kl, curves(tmp_path)) == {"mismatch/mismatch_kl/math", "mismatch/mismatch_kl/code"}


@pytest.mark.parametrize("prefix", ["off-policy/", ""])
def test_prefixes_of_the_callback_and_of_the_logger(tmp_path, prefix):
    logger = TensorBoardLogger(tmp_path, name="", version="", prefix="run (1)")
    fit(PolicyWithGroups(), BATCHES, tmp_path, logger=logger, callbacks=[RolloutISCallback(prefix=prefix)])
    written = curves(tmp_path)
    for charts in layout(tmp_path).values():
        for each in charts:
            assert drawn_in(each, written), each.title
    assert f"run (1)-{prefix}mismatch_kl" in written
    assert f"run (1)-{prefix.rstrip('/')}{'_' if prefix else ''}limits/mismatch_kl_ideal" in written


def test_two_callbacks_share_a_page(tmp_path):
    callbacks = [RolloutISCallback(), RolloutISCallback(every_n_steps=2, prefix="is/")]
    fit(Policy(), BATCHES, tmp_path, callbacks=callbacks)
    page = layout(tmp_path)
    assert list(page) == [TITLE, f"{TITLE}, details", f"{TITLE} (is)", f"{TITLE}, details (is)"]
    assert len(page[TITLE]) == len(page[f"{TITLE} (is)"])


def test_a_second_fit_has_a_page_too_and_leaves_one_in_the_same_folder(tmp_path):
    callback, logger = RolloutISCallback(), TensorBoardLogger(tmp_path / "first", name="", version="")
    module = Policy()
    fit(module, BATCHES, tmp_path, callbacks=[callback], logger=logger)
    first = layout(tmp_path / "first")
    fit(module, BATCHES, tmp_path, callbacks=[callback], logger=logger)
    fit(module, BATCHES, tmp_path / "other", callbacks=[callback])
    assert layout(tmp_path / "first") == layout(tmp_path / "other") == first
    assert [step for step, _ in texts(tmp_path / "other")] == [0, 3]


def test_a_first_point_at_which_nothing_can_be_measured_decides_nothing(tmp_path):
    undefined = {**BATCHES[0], "rollout_log_prob": BATCHES[0]["rollout_log_prob"] * float("nan")}
    with pytest.warns(UserWarning, match="no token has a usable rollout log-prob"):
        fit(Policy(), [undefined, *BATCHES], tmp_path / "undefined")
    fit(Policy(), BATCHES, tmp_path / "defined")
    assert layout(tmp_path / "undefined") == layout(tmp_path / "defined")


def test_other_loggers_and_metrics_get_no_limits(tmp_path):
    loggers = [TensorBoardLogger(tmp_path, name="", version="tb"), CSVLogger(tmp_path, name="", version="csv")]
    trainer = fit(Policy(), BATCHES, tmp_path, logger=loggers)
    with (tmp_path / "csv" / "metrics.csv").open() as file:
        names = csv.DictReader(file).fieldnames
    assert "mismatch/mismatch_kl" in names
    assert not any("limits" in name for name in [*names, *trainer.callback_metrics, *trainer.progress_bar_metrics])
    assert any("limits" in name for name in curves(tmp_path / "tb"))


def test_it_can_be_left_out(tmp_path):
    fit(Policy(), BATCHES, tmp_path, callbacks=[RolloutISCallback(tensorboard_page=False)])
    assert layout(tmp_path) == {}
    assert not any("limits" in tag for tag in curves(tmp_path))


def test_names_in_the_tables():
    for each in (*OVERVIEW, *DETAILS):
        names = [name for series in each.series for name in series] if isinstance(each, Bands) else each.curves
        for name in names:
            assert not name.startswith(LIMIT) or name.removeprefix(LIMIT) in {*LIMITS, *COUNTED}, name
        if isinstance(each, Bands):
            # TensorBoard keeps one band for each middle.
            middles = [middle for middle, _, _ in each.series]
            assert len(set(middles)) == len(middles), each.title
        # What fits above a chart.
        assert len(each.title) <= 52, each.title


COUNTED = {"values_to_watch", "values_unhealthy"}
