"""A training script as a user starts it: two processes, uneven rollouts, accumulation of two micro-batches."""

import sys

from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import Batches, fit

ROLLOUTS = [[rollout_batch(10 * rank + i, rows=1 + i + 2 * rank) for i in range(4)] for rank in range(2)]


class PolicyWithOwnRollouts(Policy):
    def train_dataloader(self):
        return Batches(ROLLOUTS[self.global_rank])


if __name__ == "__main__":
    fit(PolicyWithOwnRollouts(), None, sys.argv[1], devices=2, strategy="ddp", accumulate_grad_batches=2)
