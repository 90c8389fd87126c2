"""Trainers on ranks that are up already, and what each of them came to."""

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from lightning_rollout_is import RolloutISCallback, RolloutISMixin
from tests.distributed.ranks import WORLD
from tests.trainer.policy import ALGORITHM, VOCABULARY, Policy
from tests.trainer.runs import QUIET, Batches


class Followed(lightning.Callback):
    """How far training has come, and which curves' values a rank knows."""

    def __init__(self):
        self.started = 0
        self.values = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.started += 1

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.values.append({k: v.item() for k, v in trainer.callback_metrics.items() if k.startswith("mismatch/")})


class ShardedPolicy(RolloutISMixin, lightning.LightningModule):
    """Parameters in shards over the data-parallel ranks (FSDP2); the others hold copies of the data."""

    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Linear(1, VOCABULARY, bias=False)

    def configure_model(self):
        data_parallel = self.device_mesh["data_parallel"]
        fully_shard(self.logits, mesh=data_parallel)
        self.configure_rollout_is(ALGORITHM, process_group=data_parallel.get_group())

    def training_step(self, batch, batch_idx):
        log_prob = self.logits(torch.ones(1)).log_softmax(0)[batch["token_ids"]]
        inputs = batch["old_log_prob"], batch["rollout_log_prob"], batch["response_mask"]
        return self.rollout_is_loss(-log_prob, *inputs).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(rank, group, shares, folder=None, algorithm=ALGORITHM, every=1, automatic=True, **settings):
    """Batches that this rank started, what it raised, and the values after each batch."""
    return run(Policy(algorithm, automatic=automatic), shares[rank], folder, every, **settings)


def train_sharded(rank, group, shares, folder, data_parallel):
    """The same in shards over ``data_parallel`` ranks, with as many copies of each shard as there are ranks left."""
    strategy = ModelParallelStrategy(data_parallel, WORLD // data_parallel, process_group_backend="gloo")
    return run(ShardedPolicy(), shares[rank], folder, strategy=strategy)


def run(module, batches, folder, every=1, **settings):
    torch.manual_seed(0)
    followed = Followed()
    trainer = lightning.Trainer(
        **{**QUIET, "devices": WORLD, "strategy": "ddp", "max_epochs": 1, **settings},
        callbacks=[RolloutISCallback(every_n_steps=every), followed],
        logger=TensorBoardLogger(folder, name="", version="") if folder else False,
    )
    try:
        trainer.fit(module, Batches(batches))
    except (ValueError, MisconfigurationException) as error:
        return followed.started, str(error), followed.values
    return followed.started, None, followed.values
