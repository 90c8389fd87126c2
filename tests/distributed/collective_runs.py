"""Which collectives a Trainer runs in each batch, counted where all of them pass: at PyTorch's dispatcher."""

from collections import Counter

import lightning
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_rollout_is import RolloutISCallback
from tests.distributed.ranks import WORLD
from tests.trainer.policy import VOCABULARY, Policy
from tests.trainer.runs import QUIET, Batches


class Collectives(TorchDispatchMode):
    """Counts by name, whoever calls: this package, torchmetrics, Lightning, or the reducer of DDP in the backward."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "c10d" in func.namespace:
            self.counts[func.name().partition("::")[2].partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


class PerBatch(lightning.Callback):
    """Takes the counts wherever a batch begins; what lies between two of them belongs to the first."""

    def __init__(self, collectives):
        self.collectives = collectives
        self.batches = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.begin()

    def on_train_end(self, trainer, pl_module):
        self.begin()

    def begin(self):
        self.collectives.counts = Counter()
        self.batches.append(self.collectives.counts)


class PlainPolicy(lightning.LightningModule):
    """The same training without rollout importance sampling."""

    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(VOCABULARY))

    def training_step(self, batch, batch_idx):
        mask = batch["response_mask"]
        log_prob = self.logits.log_softmax(0)[batch["token_ids"]]
        loss = -(log_prob * mask).sum() / mask.sum().clamp(min=1)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def collectives(rank, group, shares, algorithm, every, accumulate):
    """Counts in each batch and after the last one; ``algorithm=None`` is training without the plugin."""
    module = PlainPolicy() if algorithm is None else Policy(algorithm)
    plugin = [] if algorithm is None else [RolloutISCallback(every_n_steps=every)]
    with Collectives() as counting:
        per_batch = PerBatch(counting)
        trainer = lightning.Trainer(
            **{**QUIET, "devices": WORLD, "strategy": "ddp", "max_epochs": 1},
            accumulate_grad_batches=accumulate,
            callbacks=[per_batch, *plugin],  # in this order: what the plugin does at the end of training counts there
            logger=False,
        )
        trainer.fit(module, Batches(shares[rank]))
    return per_batch.batches


def stock_collectives(rank, group, metrics):
    """Counts of a ``compute()`` of scalar metrics as torchmetrics synchronises them."""
    from torchmetrics import SumMetric

    with Collectives() as counting:
        for _ in range(metrics):
            metric = SumMetric(process_group=group)
            metric.update(1.0)
            metric.compute()
    return counting.counts
