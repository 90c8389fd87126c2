"""A run that ends badly has written what it had done."""

import csv

import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from tests.trainer.exact import assert_points_follow_the_loss
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import fit

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
