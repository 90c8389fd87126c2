"""Group-relative policy optimisation of a causal language model, with a rollout engine that disagrees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import lightning
import torch
from jaxtyping import Float, Int
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy
from torch import Tensor

from lightning_rollout_is import (
    RolloutISConfig,
    RolloutISMixin,
    aggregate_loss,
    grpo_advantages,
    ppo_clip_loss,
    token_log_probs,
)
from lightning_rollout_is.engines.seeds import seeded_generator
from lightning_rollout_is.recipes.experience import Experience, pad_groups
from lightning_rollout_is.recipes.rollout_loader import RolloutLoader
from lightning_rollout_is.recipes.sampling import GroupSampler, require_at_least_one

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class GRPOModule(RolloutISMixin, lightning.LightningModule):
    r"""GRPO (Shao et al. 2024, "DeepSeekMath") with rollout importance sampling.

    Three policies meet in the loss of a token. The engine :math:`\mu` sampled it, with ``rollout_log_prob``. The
    training policy at rollout time :math:`\pi_{old}` scored it, with ``old_log_prob``. The present policy
    :math:`\pi_\theta` is the one with a gradient:

    .. math::
        L_t = \underbrace{\frac{\pi_{old}}{\mu}}_{\text{rollout IS, bounded}} \cdot
              -\min\Big(\frac{\pi_\theta}{\pi_{old}} A, \mathrm{clip}\big(\frac{\pi_\theta}{\pi_{old}}\big) A\Big)

    The first factor stays the same over all ``ppo_epochs``. ``trainer.fit(module)`` needs no dataloader: the module
    generates its own data. It logs ``loss``, ``reward``, ``response_length`` and ``clip_fraction`` at each step.

    Args:
        policy: The model to train.
        sampler: Where responses come from; its engine gets the policy's weights before every rollout.
        algorithm: The ``algorithm`` block, or a :class:`RolloutISConfig`.
        ppo_epochs: Passes over one rollout.
        ppo_mini_batch_size: Prompts in a mini-batch, which holds as many times ``n`` sequences.
        clip_ratio_low: The PPO ratio is clipped from below at ``1 - clip_ratio_low``.
        clip_ratio_high: The PPO ratio is clipped from above at ``1 + clip_ratio_high``.
        clip_ratio_c: Dual clip, above 1, or ``None`` for none.
        loss_agg_mode: ``"token-mean"``, ``"seq-mean-token-sum"`` or ``"seq-mean-token-mean"``.
        norm_adv_by_std_in_grpo: Divide the advantages by their group's standard deviation.
        optim: Arguments of ``torch.optim.AdamW``.
        seed: Seed of the questions and of the order of mini-batches; each rank draws its own.

    Raises:
        ValueError: A setting is not allowed.
    """

    def __init__(
        self,
        policy: PreTrainedModel,
        sampler: GroupSampler,
        algorithm: RolloutISConfig | Mapping[Any, Any],
        *,
        ppo_epochs: int = 1,
        ppo_mini_batch_size: int = 32,
        clip_ratio_low: float = 0.2,
        clip_ratio_high: float = 0.2,
        clip_ratio_c: float | None = None,
        loss_agg_mode: str = "token-mean",
        norm_adv_by_std_in_grpo: bool = True,
        optim: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.configure_rollout_is(algorithm)
        self.policy = policy
        self.sampler = sampler
        self.ppo_epochs = require_at_least_one("actor_rollout_ref.actor.ppo_epochs", ppo_epochs)
        prompts = require_at_least_one("actor_rollout_ref.actor.ppo_mini_batch_size", ppo_mini_batch_size)
        self.mini_batch = prompts * sampler.n
        self.ppo_loss = partial(
            ppo_clip_loss,
            clip_ratio_low=clip_ratio_low,
            clip_ratio_high=clip_ratio_high,
            clip_ratio_c=clip_ratio_c,
        )
        self.aggregate = partial(aggregate_loss, mode=loss_agg_mode)
        self.norm_by_std = norm_adv_by_std_in_grpo
        self.optim = dict(optim or {"lr": 1e-3})
        self.seed = seed
        self._draws = 0
        self._try_loss_settings()

    def training_step(self, batch: Experience, batch_idx: int) -> Tensor:
        """The corrected loss of one mini-batch."""
        log_prob = self.log_prob(batch.token_ids)
        ppo = self.ppo_loss(log_prob, batch.old_log_prob, batch.advantages, batch.response_mask)
        token_loss = self.rollout_is_loss(
            ppo.token_loss, batch.old_log_prob, batch.rollout_log_prob, batch.response_mask
        )
        loss = self.aggregate(token_loss, batch.response_mask)
        self._log_step(batch, loss, ppo.clipped)
        return loss

    def log_prob(self, token_ids: Int[Tensor, "batch width"]) -> Float[Tensor, "batch width-1"]:
        """Log-prob of each token but the first, under the policy at the sampling temperature, nats."""
        logits = self.policy(token_ids[:, :-1]).logits
        return token_log_probs(logits, token_ids[:, 1:], self.sampler.temperature)

    @torch.no_grad()
    def rollout(self) -> Experience:
        """Sample with the present weights, score, and note what the training policy thinks of each token."""
        self.sampler.engine.sync_weights(self.policy)
        groups, mean_reward = self.sampler.sample(self._next_generator())
        responses = pad_groups(groups)
        with self.trainer.precision_plugin.forward_context():
            old_log_prob = self.log_prob(responses.token_ids.to(self.device)).cpu()
        advantages = grpo_advantages(responses.rewards, responses.group_ids, norm_by_std=self.norm_by_std)
        return Experience(
            token_ids=responses.token_ids,
            response_mask=responses.response_mask,
            rollout_log_prob=responses.rollout_log_prob,
            old_log_prob=old_log_prob,
            advantages=advantages,
            mean_reward=torch.full_like(advantages, mean_reward),
        )

    def train_dataloader(self) -> RolloutLoader:
        """Rollouts for the Trainer's ``max_steps``, or one an epoch where there is no such bound."""
        loader = RolloutLoader(
            self.rollout,
            sequences=self.sampler.train_batch_size * self.sampler.n,
            mini_batch=self.mini_batch,
            ppo_epochs=self.ppo_epochs,
            generator=self._next_generator(),
        )
        if self.trainer.max_steps > 0:
            batches = self.trainer.max_steps * self.trainer.accumulate_grad_batches
            loader.rollouts = math.ceil(batches / loader.batches_per_rollout)
        return loader

    def setup(self, stage: str) -> None:
        """Refuse a strategy that leaves no rank with whole weights, before any time is spent."""
        require_whole_weights(self.trainer.strategy)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW on all weights."""
        return torch.optim.AdamW(self.policy.parameters(), **self.optim)

    def _try_loss_settings(self) -> None:
        """The loss of one token: a setting that is not allowed is refused before anything is sampled."""
        one = torch.zeros(1, 1)
        self.aggregate(self.ppo_loss(one, one, one[0], one == 0).token_loss, one == 0)
        token_log_probs(one[None], one.long(), self.sampler.temperature)

    def _next_generator(self) -> torch.Generator:
        self._draws += 1
        return seeded_generator(self.seed, self._draws)

    def _log_step(self, batch: Experience, loss: Tensor, clipped: Tensor) -> None:
        tokens = batch.response_mask.sum()
        values = {
            "loss": loss.detach(),
            "response_length": tokens / len(batch.response_mask),
            "clip_fraction": (clipped & batch.response_mask).sum() / tokens,
        }
        rows = len(batch.response_mask)
        self.log("reward", batch.mean_reward.mean(), prog_bar=True, sync_dist=True, batch_size=rows)
        self.log_dict(values, sync_dist=True, batch_size=rows)


def require_whole_weights(strategy: Strategy) -> None:
    """Refuse a strategy that shards weights: the engine takes them whole.

    Args:
        strategy: The Trainer's.

    Raises:
        ValueError: The strategy shards weights.
    """
    if isinstance(strategy, FSDPStrategy | ModelParallelStrategy):
        raise ValueError(
            f"{type(strategy).__name__} shards the weights, and GRPOModule hands whole ones to its rollout engine; "
            "allowed: strategies with a whole copy on each rank, such as trainer=ddp"
        )
