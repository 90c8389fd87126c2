"""A training script as a user starts it, by itself or under ``torchrun``: two processes, uneven rollouts, accumulation.

The second ``fit`` gets a rollout without log-probs on rank 1.
"""

import sys
import time
from pathlib import Path

import torch

from lightning_rollout_is import RolloutISCallback
from tests.distributed.shares import batch
from tests.trainer.policy import Policy
from tests.trainer.runs import Batches, fit

ROLLOUTS = [[batch(10 * rank + i, rows=1 + i + 2 * rank, length=3 + i + rank) for i in range(4)] for rank in range(2)]
MISSING = [ROLLOUTS[0], [ROLLOUTS[1][0], {**ROLLOUTS[1][1], "rollout_log_prob": None}]]


class PolicyWithOwnRollouts(Policy):
    def __init__(self, rollouts):
        super().__init__()
        self.rollouts = rollouts

    def train_dataloader(self):
        return Batches(self.rollouts[self.global_rank])


def train(rollouts, folder, **settings):
    module = PolicyWithOwnRollouts(rollouts)
    fit(module, None, folder, devices=2, strategy="ddp", callbacks=[RolloutISCallback()], **settings)


if __name__ == "__main__":
    train(ROLLOUTS, sys.argv[1], accumulate_grad_batches=2)
    begun = time.monotonic()
    try:
        train(MISSING, sys.argv[1] + "/second", limit_train_batches=2)
    except ValueError as error:
        said = Path(sys.argv[1], f"rank{torch.distributed.get_rank()}.txt")
        said.write_text(f"{time.monotonic() - begun} {error}")
        torch.distributed.barrier()  # a rank that ends takes the others with it before they have spoken
        raise
