import statistics

import pytest
import torch

from lightning_rollout_is.losses import grpo_advantages


def plain_advantages(rewards: list[float], group_ids: list[int], norm_by_std: bool, eps: float = 1e-6) -> list[float]:
    groups = [[r for r, other in zip(rewards, group_ids, strict=True) if other == own] for own in group_ids]
    centred = [reward - statistics.fmean(group) for reward, group in zip(rewards, groups, strict=True)]
    if not norm_by_std:
        return centred
    stds = [statistics.stdev(group) if len(group) > 1 else 0.0 for group in groups]
    return [value / (std + eps) for value, std in zip(centred, stds, strict=True)]


@pytest.mark.parametrize("norm_by_std", [True, False])
def test_against_lists(norm_by_std: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(60, generator=generator, dtype=torch.float64)
    group_ids = torch.randint(0, 15, (60,), generator=generator)  # interleaved, of unequal sizes
    ours = grpo_advantages(rewards, group_ids, norm_by_std=norm_by_std)
    expected = torch.tensor(plain_advantages(rewards.tolist(), group_ids.tolist(), norm_by_std), dtype=torch.float64)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_names_of_groups_do_not_matter() -> None:
    rewards = torch.tensor([1.0, 0.0, 2.0, 5.0])
    first = grpo_advantages(rewards, torch.tensor([0, 0, 1, 1]))
    assert torch.equal(first, grpo_advantages(rewards, torch.tensor([3, 3, 0, 0], dtype=torch.int32)))


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("reward", [0.1, -3.7, 1e6])
def test_a_group_of_equal_rewards_gets_exactly_zero(reward: float, size: int) -> None:
    advantages = grpo_advantages(torch.full((size,), reward), torch.zeros(size, dtype=torch.int64))
    assert torch.equal(advantages, torch.zeros(size))


def test_a_lone_response_gets_zero_beside_others() -> None:
    advantages = grpo_advantages(torch.tensor([7.0, 1.0, 0.0]), torch.tensor([2, 0, 0]))
    torch.testing.assert_close(advantages, torch.tensor([0.0, 0.5**0.5, -(0.5**0.5)]), rtol=1e-5, atol=0.0)


def test_a_missing_reward_stays_in_its_group() -> None:
    advantages = grpo_advantages(torch.tensor([torch.nan, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1]))
    assert advantages.isnan().tolist() == [True, True, False, False]


def test_no_gradient_and_the_dtype_of_the_rewards() -> None:
    advantages = grpo_advantages(torch.tensor([1.0, 0.0], requires_grad=True), torch.tensor([0, 0]))
    assert not advantages.requires_grad
    assert advantages.dtype == torch.float32


def test_an_empty_batch() -> None:
    assert grpo_advantages(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).shape == (0,)


@pytest.mark.plain
def test_inputs_are_checked() -> None:
    rewards, ids = torch.zeros(3), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"\(3,\) and group_ids \(2,\)"):
        grpo_advantages(rewards, ids[:2])
    with pytest.raises(ValueError, match=r"\(3, 1\)"):
        grpo_advantages(rewards.unsqueeze(1), ids.unsqueeze(1))
    with pytest.raises(ValueError, match=r"group_ids have dtype torch\.float32"):
        grpo_advantages(rewards, ids.float())
    with pytest.raises(ValueError, match=r"eps = 0\.0 is not allowed; it must be positive"):
        grpo_advantages(rewards, ids, eps=0.0)
