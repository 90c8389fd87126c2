"""Run a real Trainer and read back what it wrote."""

import lightning
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightning_rollout_is import RolloutISCallback
from tests.reference.detail_oracle import details
from tests.reference.oracle import metrics

QUIET = {
    "accelerator": "cpu",
    "devices": 1,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "log_every_n_steps": 1,
}


class Batches(list):
    """Ready batches as a dataloader of their own: a sized iterable, which Lightning takes as it is."""


class ResumableBatches(Batches):
    """The same, and a checkpoint in the middle of an epoch remembers which batches are done."""

    resume_at = handed_out = 0

    def __iter__(self):
        first, self.resume_at = self.resume_at, 0
        for position in range(first, len(self)):
            self.handed_out = position + 1
            yield self[position]

    def state_dict(self):
        return {"handed_out": self.handed_out}

    def load_state_dict(self, state):
        self.resume_at = state["handed_out"] % len(self)


def _loader(batches):
    return batches if isinstance(batches, Batches) or not batches else Batches(batches)


def fit(module, batches, folder, **settings):
    """Train and return the Trainer; events go to ``folder`` unless a logger is given."""
    settings = {**QUIET, "max_epochs": 1, "callbacks": [RolloutISCallback()], **settings}
    settings.setdefault("logger", TensorBoardLogger(folder, name="", version=""))
    checkpoint = settings.pop("ckpt_path", None)
    validation = settings.pop("val_batches", None)
    trainer = lightning.Trainer(**settings)
    trainer.fit(module, _loader(batches), _loader(validation), ckpt_path=checkpoint)
    return trainer


def curves(folder):
    """Tag to a list of (step, value), from the event files in ``folder``."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def expected(batches, config):
    """What one process gets from all these batches together, by the independent oracle."""
    rows = [
        [row.double().tolist() for row in torch.cat([batch[key] for batch in batches])]
        for key in ("old_log_prob", "rollout_log_prob", "response_mask")
    ]
    settings = config.rollout_is_level, config.rollout_is_mode, config.upper, config.lower, config.veto
    return metrics(*rows, *settings) | details(*rows, *settings)
