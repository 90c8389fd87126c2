"""A run that ends badly has written what it had done."""

import csv
import subprocess
import sys

import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from lightning_rollout_is import RolloutISCallback
from tests.trainer.exact import assert_points_follow_the_loss
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import curves, fit

BATCHES = [rollout_batch(seed) for seed in range(5)]


def csv_steps(folder):
    with (folder / "metrics.csv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file) if row["mismatch/mismatch_kl"]]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_a_step_loses_no_earlier_point(tmp_path, error):
    class Fails(Policy):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            if batch_idx == 3:
                raise error("out of memory, say")
            return loss

    loggers = [TensorBoardLogger(tmp_path, name="", version="tb"), CSVLogger(tmp_path, name="", version="csv")]
    with pytest.raises(RuntimeError if error is RuntimeError else SystemExit):
        fit(Fails(), BATCHES, tmp_path, logger=loggers)
    assert_points_follow_the_loss(tmp_path / "tb", [[batch] for batch in BATCHES[:3]])
    assert csv_steps(tmp_path / "csv") == [0, 1, 2]


def kill_after(step, folder, flush_seconds):
    """The number of steps that were done when the run got SIGKILL."""
    script = [sys.executable, "-m", "tests.trainer.run_to_be_killed", str(folder), str(flush_seconds)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        done = next(int(line) for line in run.stdout if line.strip().isdigit() and int(line) >= step)
        run.kill()
        later = [int(line) for line in run.stdout.read().splitlines() if line.isdigit()]
    assert run.returncode < 0
    return max([done, *later])


@pytest.mark.timeout(120)
def test_sigkill_loses_no_point_of_a_finished_step(tmp_path):
    done = kill_after(12, tmp_path, flush_seconds=0.0)
    written = [step for step, _ in curves(tmp_path / "tb")["mismatch/mismatch_kl"]]
    # The step that was going on may have been written as well.
    assert written[:done] == list(range(done))
    assert csv_steps(tmp_path / "csv")[:done] == list(range(done))


class CountsSaves(CSVLogger):
    saves = 0

    def save(self):
        self.saves += 1
        super().save()


def test_a_long_flush_interval_is_kept_to(tmp_path):
    counts = []
    for seconds in (0.0, 3600.0):
        logger = CountsSaves(tmp_path, name="", version=str(seconds))
        callbacks = [RolloutISCallback(flush_seconds=seconds)]
        # Lightning saves its loggers whenever it logs, so it must not do so here.
        fit(Policy(), BATCHES[:3] * 3, tmp_path, logger=logger, callbacks=callbacks, log_every_n_steps=9)
        assert csv_steps(tmp_path / str(seconds)) == list(range(9))
        counts.append(logger.saves)
    assert counts[0] - counts[1] == 8  # the first point is always written out, so that a new run shows
