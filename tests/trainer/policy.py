"""A real, tiny policy: one categorical distribution over tokens, trained by REINFORCE."""

import lightning
import torch

from lightning_rollout_is import RolloutISMixin

ALGORITHM = {"rollout_is_threshold": 2.0, "rollout_is": True, "rollout_is_mode": "mask"}
VOCABULARY = 7


class _Policy:
    """Everything but the base classes, so that both orders of them can be tried."""

    def __init__(self, algorithm=ALGORITHM, automatic=True):
        super().__init__()
        self.automatic_optimization = automatic
        self.logits = torch.nn.Parameter(torch.zeros(VOCABULARY))
        self.configure_rollout_is(algorithm)

    def loss_of(self, batch):
        loss = self.weighted_loss(batch)
        self.log("loss", loss)
        return loss

    def weighted_loss(self, batch):
        log_prob = self.logits.log_softmax(0)[batch["token_ids"]]
        mask = batch["response_mask"]
        token_loss = self.rollout_is_loss(-log_prob, batch["old_log_prob"], batch["rollout_log_prob"], mask)
        return token_loss.where(mask != 0, 0.0).sum() / (mask != 0).sum().clamp(min=1)

    def training_step(self, batch, batch_idx):
        loss = self.loss_of(batch)
        return loss if self.automatic_optimization else self.step_by_hand(loss)

    def step_by_hand(self, loss):
        optimizers = self.optimizers()
        self.manual_backward(loss)
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Policy(RolloutISMixin, _Policy, lightning.LightningModule):
    pass


class PolicyWithMixinLast(_Policy, lightning.LightningModule, RolloutISMixin):
    pass


class PolicyWithValidation(Policy):
    def validation_step(self, batch, batch_idx):
        self.loss_of(batch)


class PolicyWithTwoOptimizers(Policy):
    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)]


def rollout_batch(seed, rows=3, length=5, mismatch=0.5):
    """A batch whose mismatch, lengths and masks vary with the seed."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(*shape, generator=generator)

    old = -3 * draw(rows, length)
    return {
        "token_ids": (draw(rows, length) * VOCABULARY).long(),
        "old_log_prob": old,
        "rollout_log_prob": old + mismatch * (draw(rows, length) - 0.5) * 2,
        "response_mask": (draw(rows, length) < 0.8).long(),
    }
