import pytest
import torch

from lightning_rollout_is.losses import ppo_clip_loss, reinforce_loss
from tests.losses import plain


def test_value_and_gradient_are_the_formula() -> None:
    mask = plain.ragged_mask()
    log_prob, advantages = plain.random_like(mask, 1), plain.random_like(mask, 2)
    expected = (-log_prob * advantages).where(mask != 0, 0.0)
    torch.testing.assert_close(reinforce_loss(log_prob, advantages, mask), expected)
    grad = plain.gradient(lambda z: reinforce_loss(z, advantages, mask).sum(), log_prob)
    torch.testing.assert_close(grad, (-advantages).where(mask != 0, 0.0))


def test_one_advantage_a_sequence_is_the_same_for_all_its_tokens() -> None:
    mask = plain.ragged_mask()
    log_prob, advantages = plain.random_like(mask, 1), torch.arange(5.0, dtype=torch.float64)
    per_token = advantages.unsqueeze(1).expand(5, 6)
    assert torch.equal(reinforce_loss(log_prob, advantages, mask), reinforce_loss(log_prob, per_token, mask))


def test_its_gradient_is_that_of_ppo_on_policy() -> None:
    mask = plain.ragged_mask()
    log_prob, advantages = plain.random_like(mask, 1), plain.random_like(mask, 2)
    ours = plain.gradient(lambda z: reinforce_loss(z, advantages, mask).sum(), log_prob)
    ppo = plain.gradient(lambda z: ppo_clip_loss(z, log_prob, advantages, mask).token_loss.sum(), log_prob)
    torch.testing.assert_close(ours, ppo)


@pytest.mark.parametrize("advantage_dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_is_computed_in_float32(advantage_dtype: torch.dtype) -> None:
    log_prob, advantages = torch.tensor([[-1.0078125]], dtype=torch.bfloat16), torch.tensor([1.0078125])
    loss = reinforce_loss(log_prob, advantages.to(advantage_dtype), torch.ones(1, 1))
    torch.testing.assert_close(loss, torch.tensor([[1.0078125**2]]), rtol=1e-7, atol=0.0)


@pytest.mark.plain
def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"log_prob is torch.float32 \(2, 1\)"):
        reinforce_loss(torch.zeros(2, 1), torch.ones(2), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"advantages have shape \(2, 1\)"):
        reinforce_loss(torch.zeros(2, 3), torch.ones(2, 1), torch.ones(2, 3))
