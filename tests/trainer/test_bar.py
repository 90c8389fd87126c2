"""Chosen statistics on Lightning's progress bars."""

import math

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import CONFIG
from tests.trainer.late import LateCallback
from tests.trainer.policy import ALGORITHM, Policy, rollout_batch
from tests.trainer.runs import expected, fit

BATCHES = [rollout_batch(seed) for seed in range(4)]
CHOSEN = {"ess": "rollout_is_eff_sample_size", "kl": "mismatch_kl", "mismatch/rollout_is_std": "rollout_is_std"}


class Shown:
    """Notes what the bar gets at each of its updates."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.shown = []

    def get_metrics(self, trainer, pl_module):
        metrics = super().get_metrics(trainer, pl_module)
        self.shown.append(metrics)
        return metrics


class Tqdm(Shown, TQDMProgressBar):
    pass


class Rich(Shown, RichProgressBar):
    pass


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("bar", [Tqdm, Rich])
def test_each_point_is_on_the_bar(tmp_path, bar, automatic):
    bar = bar()
    callbacks = [RolloutISCallback(prog_bar=tuple(CHOSEN)), bar]
    trainer = fit(
        Policy(automatic=automatic), BATCHES, tmp_path, callbacks=callbacks, enable_progress_bar=True, max_epochs=2
    )
    shown = [metrics for metrics in bar.shown if "ess" in metrics]
    assert len(shown) >= len(BATCHES)
    for name, full in CHOSEN.items():
        values = [expected([batch], CONFIG)[full] for batch in BATCHES]
        assert [metrics[name] for metrics in shown][:4] == [pytest.approx(value, rel=1e-6) for value in values]
        assert type(shown[0][name]) is float
        assert name in trainer.progress_bar_metrics
    assert not {"ess", "kl"} & {*trainer.callback_metrics, *trainer.logged_metrics}


def test_late_points_come_late(tmp_path):
    bar = Tqdm()
    fit(Policy(), BATCHES, tmp_path, callbacks=[LateCallback(prog_bar=["kl"]), bar], enable_progress_bar=True)
    values = [expected([batch], CONFIG)["mismatch_kl"] for batch in BATCHES]
    assert [metrics["kl"] for metrics in bar.shown][:4] == [
        pytest.approx(value) for value in (values[0], values[0], values[1], values[2])
    ]


@pytest.mark.parametrize(
    ("chosen", "full"),
    [
        ("k3", "mismatch_k3_kl"),
        ("mean", "rollout_is_mean"),
        ("veto", "rollout_is_veto_fraction"),
        ("masked", "rollout_is_masked_fraction"),
        ("missing", "rollout_is_missing_fraction"),
        ("ppl_ratio", "mismatch_ppl_ratio"),
        ("rollout_is_max", "rollout_is_max"),
        ("is/rollout_is_min", "rollout_is_min"),
    ],
)
def test_names_of_any_length_under_any_prefix(tmp_path, chosen, full):
    callback = RolloutISCallback(prefix="is/", prog_bar=chosen)
    trainer = fit(Policy(), BATCHES, tmp_path, callbacks=[callback], enable_progress_bar=True)
    if not math.isnan(wanted := expected(BATCHES[-1:], CONFIG).get(full, 0.0)):
        assert trainer.progress_bar_metrics == {chosen: pytest.approx(wanted, rel=1e-6, abs=1e-12)}


@pytest.mark.parametrize(
    ("module", "chosen"), [(Policy, "esss"), (lambda: Policy({**ALGORITHM, "rollout_is_mode": "truncate"}), "masked")]
)
def test_a_name_that_the_module_has_not_is_refused_before_any_step(tmp_path, module, chosen):
    seen = []

    class Sees(Callback):
        def on_train_batch_start(self, *_):
            seen.append(True)

    with pytest.raises(ValueError, match=f"prog_bar names '{chosen}', which is no statistic of this module") as error:
        fit(module(), BATCHES, tmp_path, callbacks=[RolloutISCallback(prog_bar=("ess", chosen)), Sees()])
    assert "allowed: mean, " in str(error.value)
    assert "ess, " in str(error.value)
    assert not seen


def test_nothing_is_computed_for_a_bar_that_is_not_there(tmp_path):
    trainer = fit(Policy(), BATCHES, tmp_path, callbacks=[RolloutISCallback(prog_bar=["ess"])])
    assert trainer.progress_bar_metrics == {}


def test_a_module_that_measures_nothing_shows_nothing(tmp_path):
    module = Policy({"rollout_is_threshold": None})
    trainer = fit(module, BATCHES, tmp_path, callbacks=[RolloutISCallback(prog_bar=["ess"])], enable_progress_bar=True)
    assert trainer.progress_bar_metrics == {}
