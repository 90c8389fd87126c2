"""A training script that says which steps are done, and goes on until somebody ends it."""

import sys
from pathlib import Path

from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from lightning_rollout_is import RolloutISCallback
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import fit

BATCHES = [rollout_batch(seed) for seed in range(5)]


class SaysWhatIsDone(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        print(trainer.global_step, flush=True)


if __name__ == "__main__":
    folder, flush_seconds = Path(sys.argv[1]), float(sys.argv[2])
    loggers = [TensorBoardLogger(folder, name="", version="tb"), CSVLogger(folder, name="", version="csv")]
    callbacks = [RolloutISCallback(flush_seconds=flush_seconds), SaysWhatIsDone()]
    # Lightning itself writes every logger out where it logs, so it must not do so here.
    fit(Policy(), BATCHES, folder, max_epochs=-1, log_every_n_steps=10**9, logger=loggers, callbacks=callbacks)
