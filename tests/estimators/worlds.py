"""Policies, mismatches and rewards, drawn from a seed as fractions."""

import itertools
import random
from fractions import Fraction

from tests.estimators.exact import PREFIXES, TOKENS, TRAJECTORIES, Policy, World, mean

SIZES = {"small": Fraction(1, 100), "medium": Fraction(1, 10), "large": Fraction(2, 5)}
"""What the rollout policy multiplies the odds of two tokens by: one plus and one minus this."""


def normalised(mass: dict[str, Fraction]) -> dict[str, Fraction]:
    return {token: value / sum(mass.values()) for token, value in mass.items()}


def pushed(train: Policy, push: dict[str, tuple[int, ...]], size: Fraction) -> Policy:
    """The policy with the odds of each token times 1 + size, 1 or 1 - size."""
    return {
        prefix: normalised({t: p[t] * (1 + size * up) for t, up in zip(TOKENS, push[prefix], strict=True)})
        for prefix, p in train.items()
    }


def drawn(seed: int, size: Fraction) -> World:
    """A policy, a mismatch of the given size at every prefix, and rewards from 0 to 4, less their mean."""
    draw = random.Random(seed)
    train = {prefix: normalised({t: Fraction(draw.randint(1, 6)) for t in TOKENS}) for prefix in PREFIXES}
    ways = list(itertools.permutations((-1, 0, 1)))
    push = {prefix: ways[draw.randrange(6)] for prefix in PREFIXES}
    rewards = {trajectory: Fraction(draw.randint(0, 4)) for trajectory in TRAJECTORIES}
    return World(train, pushed(train, push, size), centred(train, rewards))


def centred(train: Policy, rewards: dict[str, Fraction]) -> dict[str, Fraction]:
    value = mean(train, rewards.__getitem__)
    return {trajectory: reward - value for trajectory, reward in rewards.items()}


def mismatched_at(world: World, length: int) -> World:
    """The mismatch kept at one position alone, after prefixes of the given length."""
    rollout = {p: world.rollout[p] if len(p) == length else world.train[p] for p in PREFIXES}
    return world._replace(rollout=rollout)


def filtered(world: World) -> World:
    """Sampled from the training policy without the first of its least likely tokens after each prefix."""
    rollout = {}
    for prefix, chances in world.train.items():
        least = min(chances, key=chances.__getitem__)
        rollout[prefix] = normalised({t: Fraction(0) if t == least else p for t, p in chances.items()})
    return world._replace(rollout=rollout)
