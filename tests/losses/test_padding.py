"""What is outside the mask, and how the tokens are laid out, changes nothing."""

import math

import pytest
import torch
from torch import Tensor

from lightning_rollout_is.functional import importance_weights, token_log_probs
from lightning_rollout_is.losses import AGGREGATION_MODES, aggregate_loss, ppo_clip_loss, reinforce_loss
from tests.losses import plain

poisons = pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30, -1e30])


@poisons
def test_token_losses_are_zero_outside_the_mask_in_value_and_gradient(poison: float) -> None:
    mask = plain.ragged_mask()
    log_prob, old, advantages = (plain.random_like(mask, seed).masked_fill(mask == 0, poison) for seed in range(3))
    loss = ppo_clip_loss(log_prob, old, advantages, mask, clip_ratio_c=3.0)
    for field in (*loss, reinforce_loss(log_prob, advantages, mask)):
        assert not field[mask == 0].any()
        assert field.isfinite().all()
    # Summed over everything: whoever forgets the mask afterwards gets no garbage either.
    for grad in (
        plain.gradient(lambda z: ppo_clip_loss(z, old, advantages, mask).token_loss.sum(), log_prob),
        plain.gradient(lambda z: reinforce_loss(z, advantages, mask).sum(), log_prob),
    ):
        assert not grad[mask == 0].any()
        assert grad.isfinite().all()
        assert grad[mask != 0].any()


@poisons
@pytest.mark.parametrize("policy_loss", ["ppo", "reinforce"])
@pytest.mark.parametrize("mode", AGGREGATION_MODES)
def test_nothing_outside_the_mask_is_seen(mode: str, policy_loss: str, poison: float) -> None:
    """From the logits to the scalar, with the weights between, all poured full of ``poison`` outside the mask."""
    mask = torch.tensor([[1, 1, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]])
    outside = mask == 0
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 7, generator=generator)
    ids = torch.randint(0, 7, (3, 4), generator=generator).masked_fill(outside, -100)
    old, rollout, advantages = torch.randn(3, 3, 4, generator=generator).unbind()

    def total(filling: float) -> tuple[Tensor, Tensor]:
        leaf = logits.masked_fill(outside.unsqueeze(-1), filling).requires_grad_()
        log_prob = token_log_probs(leaf, ids)
        poured = [x.masked_fill(outside, filling) for x in (old, rollout, advantages)]
        if policy_loss == "ppo":
            token_loss = ppo_clip_loss(log_prob, poured[0], poured[2], mask, clip_ratio_c=3.0).token_loss
        else:
            token_loss = reinforce_loss(log_prob, poured[2], mask)
        settings = {"level": "geometric", "mode": "truncate", "upper": 2.0, "lower": None, "veto": None}
        weight = importance_weights(poured[0], poured[1], mask, **settings).weight
        loss = aggregate_loss(token_loss * weight, mask, mode)
        return (loss, *torch.autograd.grad(loss, leaf))

    clean, poisoned = total(0.0), total(poison)
    assert clean[0] != 0.0
    assert clean[1].any()
    for ours, expected in zip(poisoned, clean, strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("per_token", [True, False])
def test_padded_and_packed_policy_losses_agree(per_token: bool) -> None:
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    drop = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]]).bool()
    cu_seqlens = torch.tensor([0, 4, 6, 7], dtype=torch.int32)
    log_prob, old, advantages = torch.randn(3, 3, 4).unbind()
    if not per_token:
        advantages = advantages[:, 0]
    packed = [x[~drop] for x in (log_prob, old, mask)]
    packed_advantages = advantages[~drop] if per_token else advantages
    in_rows = ppo_clip_loss(log_prob, old, advantages, mask)
    end_to_end = ppo_clip_loss(*packed[:2], packed_advantages, packed[2], cu_seqlens=cu_seqlens)
    for ours, expected in zip(end_to_end, in_rows, strict=True):
        assert torch.equal(ours, expected[~drop])
    ours = reinforce_loss(packed[0], packed_advantages, packed[2], cu_seqlens=cu_seqlens)
    assert torch.equal(ours, reinforce_loss(log_prob, advantages, mask)[~drop])
