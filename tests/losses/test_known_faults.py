"""Inputs on which other implementations were seen to fail, and the losses that are right."""

import math

import pytest
import torch
from torch import Tensor

from lightning_rollout_is.functional import importance_weights
from lightning_rollout_is.losses import AGGREGATION_MODES, aggregate_loss, ppo_clip_loss, reinforce_loss

ONE = torch.ones(1)


def weights(old: Tensor, rollout: Tensor, mask: Tensor, level: str = "token", mode: str = "truncate") -> Tensor:
    return importance_weights(old, rollout, mask, level=level, mode=mode, upper=2.0, lower=None, veto=None).weight


def test_no_gradient_flows_through_the_weight() -> None:
    log_prob, mask = torch.tensor([[-1.0]], dtype=torch.float64, requires_grad=True), torch.ones(1, 1)
    weight = weights(log_prob, torch.tensor([[-1.5]], dtype=torch.float64), mask)
    aggregate_loss(weight * reinforce_loss(log_prob, ONE, mask), mask).backward()
    torch.testing.assert_close(log_prob.grad, torch.tensor([[-math.exp(0.5)]], dtype=torch.float64))


@pytest.mark.parametrize("mode", AGGREGATION_MODES)
def test_every_token_rejected_is_a_loss_of_zero(mode: str) -> None:
    log_prob, mask = torch.full((2, 3), -1.0, requires_grad=True), torch.ones(2, 3)
    weight = weights(log_prob, torch.full((2, 3), -9.0), mask, mode="mask")
    loss = aggregate_loss(weight * ppo_clip_loss(log_prob, log_prob, torch.ones(2), mask).token_loss, mask, mode)
    loss.backward()
    assert loss == 0.0
    assert torch.equal(log_prob.grad, torch.zeros(2, 3))


def test_sequences_of_one_token_have_the_plain_mean() -> None:
    """The outer product of (2,) and (2, 1) would be twice too large."""
    loss = torch.tensor([[1.5], [0.5]])
    assert aggregate_loss(loss, torch.ones(2, 1)) == 1.0


@pytest.mark.plain
def test_a_row_against_a_column_is_refused() -> None:
    with pytest.raises(ValueError, match="of the shape of response_mask"):
        aggregate_loss(torch.tensor([1.5, 0.5]), torch.ones(2, 1))


def test_rejected_tokens_stay_in_the_denominator() -> None:
    mask = torch.ones(1, 5)
    rollout = torch.tensor([[-1.0, -1.0, -9.0, -9.0, -9.0]])
    weight = weights(torch.full((1, 5), -1.0), rollout, mask, mode="mask")
    assert weight.tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0]]
    torch.testing.assert_close(aggregate_loss(weight * torch.ones(1, 5), mask), torch.tensor(0.4))


def test_a_vetoed_sequence_stays_in_the_denominator() -> None:
    loss, mask = torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.ones(2, 2)
    assert [aggregate_loss(loss, mask, mode).item() for mode in AGGREGATION_MODES] == [0.5, 1.0, 0.5]


def test_a_token_sum_weighs_sequences_by_their_length() -> None:
    mask = torch.arange(1000).expand(2, 1000) < torch.tensor([[10], [1000]])
    share = {}
    for mode in AGGREGATION_MODES:
        loss = torch.ones(2, 1000, requires_grad=True)
        aggregate_loss(loss, mask, mode).backward()
        share[mode] = (loss.grad[1].sum() / loss.grad[0].sum()).item()
    assert share == pytest.approx({"token-mean": 100, "seq-mean-token-sum": 100, "seq-mean-token-mean": 1})
