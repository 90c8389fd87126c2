"""Expected gradient and variance of an estimator: sums over all responses, each with its rollout probability."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is import aggregate_loss, importance_weights, ppo_clip_loss, token_log_probs

from .worlds import Worlds, probability, token_probability

Settings = dict[str, Any] | None
"""For ``importance_weights``; ``None`` for no correction."""


class Moments(NamedTuple):
    """Of one response's gradient, by world."""

    gradient: Tensor
    """(worlds, logits): expected."""
    variance: Tensor
    """(worlds,): trace of the covariance."""
    ess: Tensor
    """(worlds,): effective sample size of the applied weights over tokens, share; 0 if every weight is."""


class Summary(NamedTuple):
    """Against the gradient on policy, (worlds,) each."""

    bias: Tensor
    """Length of the expected gradient's error, over the length of the gradient on policy."""
    cosine: Tensor
    """Between the two; NaN if nothing is left."""
    variance: Tensor
    """Over that on policy."""
    ess: Tensor


def gradients(worlds: Worlds, settings: Settings) -> tuple[Tensor, Tensor]:
    """What each response's loss alone says, downhill, (worlds, responses, logits), and the weight of each token."""
    responses, shape = worlds.responses, worlds.advantages.shape
    token, mask = (x.repeat(shape[0], 1) for x in (responses.token, responses.mask))
    logits = torch.nn.functional.pad(worlds.train.log(), (0, 0, 0, 1))[:, responses.prefix].flatten(0, 1)
    log_prob = token_log_probs(logits.requires_grad_(), token)
    weight = mask.double()
    if settings is not None:
        rollout_log_prob = token_probability(worlds.rollout, responses).log().flatten(0, 1)
        weight = importance_weights(log_prob, rollout_log_prob, mask, **settings).weight
    loss = ppo_clip_loss(log_prob, log_prob, worlds.advantages.flatten(), mask).token_loss
    total = aggregate_loss(loss * weight, mask, "seq-mean-token-sum", denominator=1)
    (gradient,) = torch.autograd.grad(total, logits)
    return _by_logit(worlds, -gradient.view(*shape, *gradient.shape[1:])), weight.view(*shape, -1)


def _by_logit(worlds: Worlds, of_step: Tensor) -> Tensor:
    """Each step's gradient at the logits of its prefix: no response meets a prefix twice."""
    prefix = worlds.responses.prefix
    placed = of_step.new_zeros(*of_step.shape[:2], len(worlds.responses.prefixes) + 1, of_step.shape[-1])
    placed.scatter_(2, prefix.expand(len(of_step), -1, -1).unsqueeze(-1).expand_as(of_step), of_step)
    return placed[:, :, :-1].flatten(2)


def moments(worlds: Worlds, settings: Settings) -> Moments:
    chance = probability(worlds.rollout, worlds.responses)
    gradient, weight = gradients(worlds, settings)
    mean = (chance.unsqueeze(-1) * gradient).sum(1)
    variance = (chance * gradient.square().sum(-1)).sum(1) - mean.square().sum(-1)
    mask = worlds.responses.mask.double().expand_as(weight)
    tokens, first, second = ((chance * x.sum(-1)).sum(1) for x in (mask, weight, weight.square()))
    return Moments(mean, variance, first.square() / (second * tokens).where(first > 0.0, 1.0))


def summary(found: Moments, on_policy: Moments) -> Summary:
    length = on_policy.gradient.norm(dim=-1)
    cosine = (found.gradient * on_policy.gradient).sum(-1) / (found.gradient.norm(dim=-1) * length)
    bias = (found.gradient - on_policy.gradient).norm(dim=-1) / length
    return Summary(bias, cosine, found.variance / on_policy.variance, found.ess)


def mismatch(worlds: Worlds) -> tuple[Tensor, Tensor]:
    """K3, nats, and chi-square of the tokens that the rollout policy samples, (worlds,) each."""
    responses = worlds.responses
    log_ratio = (token_probability(worlds.train, responses) / token_probability(worlds.rollout, responses)).log()
    chance = probability(worlds.rollout, responses).unsqueeze(-1) * responses.mask
    excess = log_ratio.expm1()
    k3, mean, square = ((x * chance).sum((1, 2)) / chance.sum((1, 2)) for x in (excess - log_ratio, excess, excess**2))
    return k3, square + 2.0 * mean
