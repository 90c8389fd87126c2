"""A policy whose every trajectory can be counted, and what a policy gradient estimator makes of them, in fractions.

Nothing of the library under test is used here. Three tokens, one of which ends the response; at most three tokens a
response; for each prefix a softmax of its own, whose logits are the parameters. The derivative of a log-prob by a logit
is then a fraction, ``[chosen] - probability``, and an expected gradient is a sum of fifteen fractions. Only the
geometric mean of several ratios is a float.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import NamedTuple

END, TOKENS, LONGEST = ".", ".ab", 3

Number = Fraction | float
Policy = dict[str, dict[str, Fraction]]
"""Probability of each next token, by prefix."""
Gradient = dict[tuple[str, str], Number]
"""By prefix and token, whose logit it is the derivative by; what is absent is 0."""

PREFIXES = ["".join(p) for n in range(LONGEST) for p in itertools.product("ab", repeat=n)]
TRAJECTORIES = [p + t for p in PREFIXES for t in TOKENS if t == END or len(p) == LONGEST - 1]


class World(NamedTuple):
    """Who trains, who samples, and what a trajectory is worth."""

    train: Policy
    rollout: Policy
    advantage: dict[str, Fraction]

    @property
    def on_policy(self) -> "World":
        """The same, sampled from the policy that is trained."""
        return self._replace(rollout=self.train)


class Setting(NamedTuple):
    """How a weight is made; ``none`` weighs everything 1."""

    level: str = "none"
    mode: str = "truncate"
    upper: Fraction | None = None
    lower: Fraction = Fraction(0)
    veto: Fraction = Fraction(0)


NO_WEIGHT = Setting()


def steps(trajectory: str) -> list[tuple[str, str]]:
    """Prefix and token of each step."""
    return [(trajectory[:t], token) for t, token in enumerate(trajectory)]


def probability(policy: Policy, trajectory: str) -> Fraction:
    return math.prod((policy[prefix][token] for prefix, token in steps(trajectory)), start=Fraction(1))


def mean(policy: Policy, value: Callable[[str], Number]) -> Number:
    """Expectation over the trajectories of a policy."""
    return sum(probability(policy, trajectory) * value(trajectory) for trajectory in possible(policy))


def possible(policy: Policy) -> list[str]:
    """What can be sampled at all: there is no ratio to the probability 0."""
    return [trajectory for trajectory in TRAJECTORIES if probability(policy, trajectory)]


def ratios(world: World, trajectory: str) -> list[Fraction]:
    """Training over rollout probability of each token."""
    return [world.train[prefix][token] / world.rollout[prefix][token] for prefix, token in steps(trajectory)]


def raw_weights(ratio: list[Fraction], level: str) -> list[Number]:
    if level == "none":
        return [Fraction(1)] * len(ratio)
    if level == "token":
        return list(ratio)
    product = math.prod(ratio, start=Fraction(1))
    if level == "sequence" or len(ratio) == 1:
        return [product] * len(ratio)
    return [float(product) ** (1 / len(ratio))] * len(ratio)


def bounded(weight: Number, setting: Setting) -> Number:
    if setting.upper is None:
        return weight
    if setting.mode == "truncate":
        return min(weight, setting.upper)
    return weight if setting.lower <= weight <= setting.upper else Fraction(0)


def weights(world: World, trajectory: str, setting: Setting) -> list[Number]:
    """What multiplies the loss of each token."""
    ratio = ratios(world, trajectory)
    if any(r < setting.veto for r in ratio):
        return [Fraction(0)] * len(ratio)
    return [bounded(weight, setting) for weight in raw_weights(ratio, setting.level)]


def add(total: Gradient, scale: Number, gradient: Gradient) -> None:
    for key, value in gradient.items():
        total[key] = total.get(key, Fraction(0)) + scale * value


def score(policy: Policy, prefix: str, token: str) -> Gradient:
    """Derivative of the log-prob of a token by the logits."""
    return {(prefix, other): (other == token) - p for other, p in policy[prefix].items()}


def estimate(world: World, trajectory: str, setting: Setting = NO_WEIGHT) -> Gradient:
    """Ascent direction that one trajectory proposes: sum over its tokens of weight, advantage and score."""
    total: Gradient = {}
    for (prefix, token), weight in zip(steps(trajectory), weights(world, trajectory, setting), strict=True):
        add(total, weight * world.advantage[trajectory], score(world.train, prefix, token))
    return total


def expected(world: World, setting: Setting = NO_WEIGHT, per: Callable[[str], Number] = lambda _: 1) -> Gradient:
    """Mean estimate under the policy that samples, each trajectory's divided by ``per`` of it."""
    total: Gradient = {}
    for trajectory in possible(world.rollout):
        add(total, probability(world.rollout, trajectory) / per(trajectory), estimate(world, trajectory, setting))
    return total


def variance(world: World, setting: Setting = NO_WEIGHT) -> Number:
    """Trace of the covariance of one trajectory's estimate."""
    return mean(world.rollout, lambda t: square(estimate(world, t, setting))) - square(expected(world, setting))


def effective_sample_size(world: World, setting: Setting) -> float:
    """Of the weights that multiply the loss, over tokens, as a share: E[w]^2 / E[w^2]; 0 if all are 0."""
    first = mean(world.rollout, lambda t: sum(weights(world, t, setting)))
    second = mean(world.rollout, lambda t: sum(w**2 for w in weights(world, t, setting)))
    return float(first) ** 2 / float(second * mean(world.rollout, len)) if second else 0.0


def square(gradient: Gradient) -> Number:
    return sum((value**2 for value in gradient.values()), start=Fraction(0))


def minus(left: Gradient, right: Gradient) -> Gradient:
    """Difference, without the zeros."""
    difference = dict(left)
    add(difference, Fraction(-1), right)
    return {key: value for key, value in difference.items() if value}


def bias(world: World, setting: Setting = NO_WEIGHT) -> Gradient:
    """Expected estimate minus the gradient of the expected return."""
    return minus(expected(world, setting), expected(world.on_policy))


def gradient_sum(gradients: Iterable[tuple[Number, Gradient]]) -> Gradient:
    total: Gradient = {}
    for scale, gradient in gradients:
        add(total, scale, gradient)
    return total
