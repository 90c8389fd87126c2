"""Run a real Trainer and read back what it wrote."""

import lightning
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightning_rollout_is import RolloutISCallback
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


def fit(module, batches, folder, **settings):
    """Train and return the Trainer; events go to ``folder`` unless a logger is given."""
    settings = {**QUIET, "max_epochs": 1, "callbacks": [RolloutISCallback()], **settings}
    settings.setdefault("logger", TensorBoardLogger(folder, name="", version=""))
    checkpoint = settings.pop("ckpt_path", None)
    validation = settings.pop("val_batches", None)
    trainer = lightning.Trainer(**settings)
    trainer.fit(
        module, Batches(batches) if batches else None, Batches(validation) if validation else None, ckpt_path=checkpoint
    )
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
    return metrics(*rows, config.rollout_is_level, config.rollout_is_mode, config.upper, config.lower, config.veto)
