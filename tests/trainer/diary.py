"""What happened in which order in a run: the ends of batches, and the points that reached a logger."""

from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger

KEY = "mismatch/mismatch_kl"


class Diary(Callback):
    """Stands behind the callback that is tested; its ``events`` are ``"batch 0"``, ``"point 0"``, ``"saved"``, ..."""

    def __init__(self):
        self.events = []
        self.monitored = []

    def logger(self, folder):
        return _Noting(folder, self.events)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.events.append(f"batch {batch_idx}")
        self.monitored.append(trainer.callback_metrics.get(KEY))

    def on_validation_start(self, trainer, pl_module):
        self.events.append("validation")
        self.monitored.append(trainer.callback_metrics.get(KEY))

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        self.events.append("saved")


class _Noting(CSVLogger):
    def __init__(self, folder, events):
        super().__init__(folder, name="", version="noted")
        self._events = events

    def log_metrics(self, metrics, step=None):
        super().log_metrics(metrics, step)
        if KEY in metrics:
            self._events.append(f"point {step}")
