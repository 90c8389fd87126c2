"""Policies small enough that all their responses can be counted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

END = "."
FAVOURS = {2: [(1, -1), (-1, 1)], 3: list(itertools.permutations((-1, 0, 1)))}
"""Ways to favour a token and to disfavour another, by the size of the vocabulary."""


class Responses(NamedTuple):
    """All responses, (responses, steps) each. What lies behind the end of one is masked, and has a prefix of its own.

    Each prefix has its own distribution over the next token, so that nothing is lost to a model that cannot express it.
    """

    prefixes: list[str]
    words: list[str]
    tokens: str
    prefix: Tensor
    """Which prefix a step has; ``len(prefixes)`` behind the end."""
    token: Tensor
    mask: Tensor


class Draw(NamedTuple):
    """Whole numbers of which a world is made."""

    odds: list[list[int]]
    """Of each token after each prefix, under the training policy: 1 to 6."""
    push: list[tuple[int, ...]]
    """After each prefix: 1 for the token that the rollout policy favours, -1 for the one that it disfavours."""
    rewards: list[int]
    """Of each response: 0 to 4."""


class Worlds(NamedTuple):
    """Who trains, who samples, and what a response is worth, in several worlds at once."""

    responses: Responses
    train: Tensor
    """(worlds, prefixes, tokens) probabilities."""
    rollout: Tensor
    """(worlds, prefixes, tokens) probabilities."""
    advantages: Tensor
    """(worlds, responses): reward minus its mean under the training policy."""

    @property
    def on_policy(self) -> Worlds:
        """The same, sampled from the policy that is trained."""
        return self._replace(rollout=self.train)


def responses_of(tokens: str, longest: int) -> Responses:
    """Every response of at most ``longest`` tokens; ``.`` ends one, where it is among the tokens."""
    going = tokens.replace(END, "")
    prefixes = ["".join(p) for n in range(longest) for p in itertools.product(going, repeat=n)]
    words = [p + t for p in prefixes for t in tokens if t == END or len(p) == longest - 1]
    behind = len(prefixes)
    prefix = [[prefixes.index(word[:t]) if t < len(word) else behind for t in range(longest)] for word in words]
    token = [[tokens.index(word[t]) if t < len(word) else 0 for t in range(longest)] for word in words]
    at = torch.tensor(prefix)
    return Responses(prefixes, words, tokens, at, torch.tensor(token), at < behind)


def draw(seed: int, responses: Responses) -> Draw:
    """One world's numbers, the same on every machine."""
    source, ways = random.Random(seed), FAVOURS[len(responses.tokens)]
    return Draw(
        [[source.randint(1, 6) for _ in responses.tokens] for _ in responses.prefixes],
        [ways[source.randrange(len(ways))] for _ in responses.prefixes],
        [source.randint(0, 4) for _ in responses.words],
    )


def worlds_of(responses: Responses, draws: Sequence[Draw], size: float) -> Worlds:
    """The rollout policy multiplies the odds of the favoured token by 1 + size, of the disfavoured one by 1 - size."""
    odds, push, rewards = (torch.tensor(part, dtype=torch.float64) for part in zip(*draws, strict=True))
    return _centred(Worlds(responses, _normalised(odds), _normalised(odds * (1.0 + size * push)), rewards))


def faulty(responses: Responses, draws: Sequence[Draw], trained: float = 1e-5, sampled: float = 0.2) -> Worlds:
    """Equal policies but for the first token: the last of the vocabulary has these two probabilities there."""
    equal = worlds_of(responses, draws, 0.0)
    train, rollout = equal.train.clone(), equal.train.clone()
    for policy, chance in ((train, trained), (rollout, sampled)):
        policy[:, 0, :-1] = _normalised(policy[:, 0, :-1]) * (1.0 - chance)
        policy[:, 0, -1] = chance
    return _centred(equal._replace(train=train, rollout=rollout))


def filtered(responses: Responses, draws: Sequence[Draw]) -> Worlds:
    """Equal policies, but that the engine never samples the least likely token, as with top-k or top-p."""
    equal = worlds_of(responses, draws, 0.0)
    kept = equal.train.scatter(-1, equal.train.argmin(-1, keepdim=True), 0.0)
    return equal._replace(rollout=_normalised(kept))


def token_probability(policy: Tensor, responses: Responses) -> Tensor:
    """(worlds, responses, steps): of each token; 1 behind the end."""
    padded = torch.nn.functional.pad(policy, (0, 0, 0, 1), value=1.0)
    token = responses.token.expand(len(policy), -1, -1).unsqueeze(-1)
    return padded[:, responses.prefix].gather(-1, token).squeeze(-1)


def probability(policy: Tensor, responses: Responses) -> Tensor:
    """(worlds, responses): of each response."""
    return token_probability(policy, responses).prod(-1)


def _normalised(odds: Tensor) -> Tensor:
    return odds / odds.sum(-1, keepdim=True)


def _centred(worlds: Worlds) -> Worlds:
    chance = probability(worlds.train, worlds.responses)
    value = (chance * worlds.advantages).sum(-1, keepdim=True)
    return worlds._replace(advantages=worlds.advantages - value)
