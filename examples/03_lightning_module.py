"""The smallest LightningModule with rollout importance sampling: REINFORCE on a bandit with a stale rollout policy.

The rollout policy is a copy of the policy that is refreshed every tenth step. Its log-probs differ from the trainer's
in between, and the curves show it: `tensorboard --logdir runs/bandit`.
"""

import lightning
import torch
from lightning.pytorch.loggers import TensorBoardLogger

from lightning_rollout_is import RolloutISCallback, RolloutISMixin

ARMS, TURNS, BATCH = 8, 4, 64


class Bandit(RolloutISMixin, lightning.LightningModule):
    """A policy over arms; the reward of a response is how often it pulled the last arm."""

    def __init__(self, algorithm):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(ARMS))
        self.rollout_logits = torch.zeros(ARMS)
        self.configure_rollout_is(algorithm)

    def training_step(self, batch, batch_idx):
        if batch_idx % 10 == 0:
            self.rollout_logits = self.logits.detach().clone()
        actions = torch.distributions.Categorical(logits=self.rollout_logits).sample((BATCH, TURNS))
        rollout_log_prob = self.rollout_logits.log_softmax(0)[actions]
        log_prob = self.logits.log_softmax(0)[actions]
        reward = (actions == ARMS - 1).float().mean(1)
        advantage = (reward - reward.mean()).unsqueeze(1)

        mask = torch.ones_like(actions)
        token_loss = self.rollout_is_loss(-advantage * log_prob, log_prob.detach(), rollout_log_prob, mask)
        self.log("reward", reward.mean(), prog_bar=True)
        return token_loss.sum() / mask.sum()

    def train_dataloader(self):
        return range(100)  # a rollout is made in each step; the loader only counts

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=2.0)


if __name__ == "__main__":
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        log_every_n_steps=1,
        logger=TensorBoardLogger("runs", name="bandit"),
        callbacks=[RolloutISCallback()],
        enable_checkpointing=False,
    )
    trainer.fit(Bandit({"rollout_is_threshold": 2.0, "rollout_is": True}))
    ess = trainer.callback_metrics["mismatch/rollout_is_eff_sample_size"]
    print(f"reward {trainer.callback_metrics['reward']:.3f}, effective sample size {ess:.3f}")
    print(f"tensorboard --logdir {trainer.logger.log_dir}")
