"""What the estimators' means must be, derived a second way: by recursion over prefixes, not a sum of trajectories."""

from fractions import Fraction

from tests.estimators.exact import (
    PREFIXES,
    TOKENS,
    TRAJECTORIES,
    Gradient,
    Policy,
    World,
    add,
    probability,
    score,
    steps,
)


def reach(policy: Policy, prefix: str) -> Fraction:
    """Probability that a response begins like this."""
    return probability(policy, prefix)


def action_value(policy: Policy, advantage: dict[str, Fraction], prefix: str, token: str) -> Fraction:
    """Mean advantage of the responses that begin with the prefix and the token, when the policy goes on from there."""
    if (begun := prefix + token) in advantage:
        return advantage[begun]
    return sum(policy[begun][t] * action_value(policy, advantage, begun, t) for t in TOKENS)


def policy_gradient(world: World) -> Gradient:
    """The policy gradient theorem with the rollout policy's states and values, and the training policy's actions.

    For equal policies that is the gradient of the expected return; otherwise the mean of the token level.
    """
    total: Gradient = {}
    for prefix in PREFIXES:
        value = {t: action_value(world.rollout, world.advantage, prefix, t) for t in TOKENS}
        baseline = sum(world.train[prefix][t] * value[t] for t in TOKENS)
        for token in TOKENS:
            chance = reach(world.rollout, prefix) * world.train[prefix][token]
            total[prefix, token] = chance * (value[token] - baseline)
    return total


def slopes(world: World, rates: dict[str, Fraction]) -> dict[str, Gradient]:
    """How fast each level's bias grows from equal policies: its derivative by the mismatch.

    ``rates`` holds, by begun response, the derivative of the last token's rollout log-prob.
    """
    total: dict[str, Gradient] = {"none": {}, "token": {}, "geometric": {}, "sequence": {}}
    for trajectory in TRAJECTORIES:
        rate = [rates[prefix + token] for prefix, token in steps(trajectory)]
        all_of_it, weight = sum(rate), probability(world.train, trajectory) * world.advantage[trajectory]
        corrected = {"none": [0] * len(rate), "token": rate, "sequence": [all_of_it] * len(rate)}
        corrected["geometric"] = [all_of_it / len(rate)] * len(rate)
        for level, parts in corrected.items():
            for (prefix, token), part in zip(steps(trajectory), parts, strict=True):
                add(total[level], weight * (all_of_it - part), score(world.train, prefix, token))
    return total
