"""Where the values arrive: loggers, callback_metrics, other callbacks; and what is not written."""

import csv
import math
from contextlib import nullcontext

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import CONFIG, assert_points_follow_the_loss
from tests.trainer.policy import ALGORITHM, Policy, rollout_batch
from tests.trainer.runs import curves, expected, fit

BATCHES = [rollout_batch(seed) for seed in range(4)]


def test_every_logger_gets_every_point(tmp_path):
    loggers = [TensorBoardLogger(tmp_path, name="", version="tb"), CSVLogger(tmp_path, name="", version="csv")]
    fit(Policy(), BATCHES, tmp_path, logger=loggers)
    written = curves(tmp_path / "tb")["mismatch/rollout_is_mean"]
    with (tmp_path / "csv" / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["mismatch/rollout_is_mean"]]
    assert [(int(row["step"]), float(row["mismatch/rollout_is_mean"])) for row in rows] == [
        (step, pytest.approx(value, rel=1e-6)) for step, value in written
    ]
    assert len(rows) == 4


@pytest.mark.parametrize("settings", [{"logger": False}, {"fast_dev_run": True}])
def test_values_are_in_callback_metrics_even_without_a_logger(tmp_path, settings):
    trainer = fit(Policy(), BATCHES, tmp_path, **settings)
    last = BATCHES[:1] if "fast_dev_run" in settings else BATCHES[-1:]
    for name, value in expected(last, CONFIG).items():
        assert trainer.callback_metrics[f"mismatch/{name}"].item() == pytest.approx(value, rel=1e-6, abs=1e-7)


def test_model_checkpoint_and_early_stopping_can_monitor(tmp_path):
    name = "mismatch/mismatch_k3_kl"
    keep = ModelCheckpoint(tmp_path / "ckpt", monitor=name, mode="min", every_n_train_steps=1, save_top_k=1)
    stop = EarlyStopping(monitor=name, patience=0, mode="min", check_on_train_epoch_end=True)
    trainer = fit(
        Policy(),
        BATCHES,
        tmp_path,
        max_epochs=5,
        enable_checkpointing=True,
        callbacks=[RolloutISCallback(), keep, stop],
    )
    values = [expected([batch], CONFIG)["mismatch_k3_kl"] for batch in BATCHES]
    assert keep.best_model_score.item() == pytest.approx(min(values), rel=1e-6)
    assert trainer.current_epoch == 2  # the same data again is no improvement


def test_the_module_can_still_read_what_was_written(tmp_path):
    class Reads(Policy):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.log_dict({f"read/{name}": value for name, value in self.rollout_is_metrics.compute().items()})

    fit(Reads(), BATCHES, tmp_path, accumulate_grad_batches=2)
    written = curves(tmp_path)
    assert_points_follow_the_loss(tmp_path, [BATCHES[:2], BATCHES[2:]])
    for name in expected(BATCHES[:2], CONFIG):
        assert written[f"read/mismatch/{name}"] == written[f"mismatch/{name}"], name


def test_a_step_without_a_valid_token_writes_nothing_and_the_next_one_does(tmp_path):
    empty = {**BATCHES[1], "response_mask": BATCHES[1]["response_mask"] * 0}
    fit(Policy(), [BATCHES[0], empty, BATCHES[2]], tmp_path)
    written = curves(tmp_path)
    assert [step for step, _ in written["loss"]] == [0, 1, 2]
    for tag in [tag for tag in written if tag.startswith("mismatch/")]:
        steps = [step for step, _ in written[tag]]
        # Short responses leave some tenths of the profile empty.
        assert steps == [0, 2] or ("decile" in tag and set(steps) < {0, 2}), tag


def test_undefined_values_alone_are_left_out(tmp_path):
    certain = {**BATCHES[0], "old_log_prob": BATCHES[0]["old_log_prob"].clone()}
    certain["old_log_prob"][0] = -math.inf
    fit(Policy(), [certain], tmp_path)
    written = curves(tmp_path)
    assert "mismatch/mismatch_kl" not in written  # KL is infinite
    assert "mismatch/mismatch_training_log_ppl" not in written
    assert written["mismatch/rollout_is_veto_fraction"][0][1] > 0
    assert all(math.isfinite(value) for points in written.values() for _, value in points)


def test_no_log_prob_at_all_is_said_once(tmp_path):
    missing = [{**batch, "rollout_log_prob": batch["rollout_log_prob"] * math.nan} for batch in BATCHES]
    with pytest.warns(UserWarning, match="no token has a usable rollout log-prob") as caught:
        fit(Policy(), missing, tmp_path)
    assert len([w for w in caught if "usable rollout log-prob" in str(w.message)]) == 1
    assert curves(tmp_path)["mismatch/rollout_is_missing_fraction"] == [(step, 1.0) for step in range(4)]


def test_a_mask_of_other_values_is_said_and_logs_nothing(tmp_path):
    weighted = {**BATCHES[0], "response_mask": BATCHES[0]["response_mask"] * 0.5}
    with pytest.warns(UserWarning, match="response_mask holds values other than 0 and 1"):
        fit(Policy({**ALGORITHM, "rollout_is": False}), [weighted], tmp_path)
    assert "mismatch/mismatch_kl" not in curves(tmp_path)


def test_threshold_null_logs_nothing(tmp_path):
    trainer = fit(Policy({"rollout_is_threshold": None}), BATCHES, tmp_path)
    assert set(curves(tmp_path)) == {"loss", "epoch"}
    assert not any(name.startswith("mismatch") for name in trainer.callback_metrics)


def test_a_module_without_the_mixin_is_refused_before_training(tmp_path):
    class Plain(LightningModule):
        training_step = configure_optimizers = Policy.configure_optimizers

    with pytest.raises(MisconfigurationException, match="no rollout importance sampling in Plain; derive it from"):
        fit(Plain(), BATCHES, tmp_path)


@pytest.mark.parametrize("every", [0, -1])
def test_an_interval_below_one_is_refused(every):
    with pytest.raises(ValueError, match=f"every_n_steps = {every} is not allowed"):
        RolloutISCallback(every_n_steps=every)


@pytest.mark.parametrize("precision", ["32-true", "16-true", "bf16-true", "bf16-mixed", "64-true"])
def test_precision_of_the_module_leaves_the_statistics_exact(tmp_path, precision):
    # Lightning casts the batch as well where the whole module is of low precision, and that costs: it is said.
    dtype = {"16-true": torch.float16, "bf16-true": torch.bfloat16}.get(precision, torch.float32)
    rounded = pytest.warns(UserWarning, match=f"_log_prob is {dtype}, which rounds")
    with nullcontext() if dtype == torch.float32 else rounded:
        fit(Policy(), BATCHES, tmp_path, precision=precision, accumulate_grad_batches=2)
    seen = [{k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()} for batch in BATCHES]
    assert_points_follow_the_loss(tmp_path, [seen[:2], seen[2:]])
