"""A run that is stopped and resumed writes the curve of one that never stopped."""

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import assert_curves_are_exact, assert_points_follow_the_loss
from tests.trainer.policy import Policy, PolicyWithTwoOptimizers, rollout_batch
from tests.trainer.runs import ResumableBatches, curves, fit

pytestmark = [
    # The resumed run writes no checkpoints.
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks:UserWarning"),
    # Lightning would rather have the weights from before a manual step; points do not depend on them.
    pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization:UserWarning"),
]
BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(6)]
MODES = {
    "each_batch": (lambda: Policy(), 1),
    "windows_of_2": (lambda: Policy(), 2),
    "windows_of_4": (lambda: Policy(), 4),
    "manual": (lambda: Policy(automatic=False), 1),
    "manual_two_optimizers": (lambda: PolicyWithTwoOptimizers(automatic=False), 1),
}


def windows_of(size):
    return [BATCHES[i : i + size] for i in range(0, len(BATCHES), size)]


def run(module, folder, accumulate, **settings):
    settings = {"callbacks": [RolloutISCallback()], "max_epochs": 2, **settings}
    return fit(module, ResumableBatches(BATCHES), folder, accumulate_grad_batches=accumulate, **settings)


def checkpoints(mode, folder):
    """By number of points before it: a checkpoint after every optimizer step, and after every epoch."""
    make, accumulate = MODES[mode]
    steps = ModelCheckpoint(folder / "steps", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    epochs = ModelCheckpoint(folder / "epochs", save_top_k=-1, filename="{epoch}")
    callbacks = [RolloutISCallback(), steps, epochs]
    run(make(), folder / "full", accumulate, callbacks=callbacks, enable_checkpointing=True)
    per_epoch = len(windows_of(accumulate))
    optimizers = len(windows_of(1)) * 2 if "two" in mode else per_epoch
    assert len(list((folder / "steps").iterdir())) == 2 * per_epoch
    for path in sorted(folder.glob("*/*.ckpt")):
        kind, number = path.stem.split("=")
        yield (int(number) * per_epoch // optimizers if kind == "step" else (int(number) + 1) * per_epoch), path


@pytest.mark.parametrize("mode", MODES)
def test_resuming_anywhere_repeats_and_misses_nothing(tmp_path, mode):
    make, accumulate = MODES[mode]
    windows = windows_of(accumulate) * 2
    for written, path in checkpoints(mode, tmp_path):
        folder = tmp_path / "resumed" / path.stem
        run(make(), folder, accumulate, ckpt_path=path)
        left = range(written, len(windows))
        if left:
            assert_curves_are_exact(folder, left, [windows[step] for step in left])
            assert_points_follow_the_loss(folder, [windows[step] for step in left])
        else:
            assert not any(tag.startswith("mismatch/") for tag in curves(folder))


def test_one_folder_holds_one_curve(tmp_path):
    for epochs in (1, 2, 3):
        before = tmp_path / f"{epochs - 1}.ckpt"
        trainer = run(Policy(), tmp_path, 2, max_epochs=epochs, ckpt_path=before if epochs > 1 else None)
        trainer.save_checkpoint(tmp_path / f"{epochs}.ckpt", weights_only=False)
    assert_points_follow_the_loss(tmp_path, windows_of(2) * 3)


def test_the_interval_of_the_callback_goes_on_where_it_was(tmp_path):
    every_third = {"callbacks": [RolloutISCallback(every_n_steps=4)]}
    first = run(Policy(), tmp_path, 1, max_epochs=1, **every_third)
    first.save_checkpoint(tmp_path / "1.ckpt", weights_only=False)
    run(Policy(), tmp_path, 1, max_epochs=2, ckpt_path=tmp_path / "1.ckpt", **every_third)
    assert_curves_are_exact(tmp_path, [3, 7, 11], [[BATCHES[step % 6]] for step in (3, 7, 11)])


def test_a_csv_of_the_resumed_run_goes_on_too(tmp_path):
    first = run(Policy(), tmp_path, 1, max_epochs=1)
    first.save_checkpoint(tmp_path / "1.ckpt", weights_only=False)
    logger = CSVLogger(tmp_path, name="", version="csv")
    run(Policy(), tmp_path, 1, ckpt_path=tmp_path / "1.ckpt", logger=logger)
    lines = (tmp_path / "csv" / "metrics.csv").read_text().splitlines()
    column, step = lines[0].split(",").index("mismatch/mismatch_kl"), lines[0].split(",").index("step")
    assert [int(row.split(",")[step]) for row in lines[1:] if row.split(",")[column]] == list(range(6, 12))
