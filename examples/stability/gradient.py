"""How far each correction's expected gradient is from the one on policy, at weights of the demo's model.

Responses are sampled on policy, and weighed by how often the engine would have sampled them: one sample serves every
engine and correction, and chance cancels between what is compared. Four minutes of one core::

    python -m examples.stability.gradient               # writes docs/stability/gradient.csv
"""

from __future__ import annotations

import copy
import csv
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir
from torch import Tensor, nn

from lightning_rollout_is import RolloutISConfig, importance_weights, token_log_probs
from lightning_rollout_is.engines import CTranslate2Engine
from lightning_rollout_is.engines.rounded import round_to_bfloat16, round_to_int4
from lightning_rollout_is.hydra_store import conf_directory
from lightning_rollout_is.recipes.experience import Responses, pad_groups
from lightning_rollout_is.recipes.policy import tiny_llama
from lightning_rollout_is.recipes.sampling import GroupSampler
from lightning_rollout_is.recipes.tasks import SortDigits

from .grid import ALGORITHMS, Run
from .training import fitted

FILE = Path(__file__).parents[2] / "docs" / "stability" / "gradient.csv"
UPDATES = 8
"""On policy, from the shipped weights to those at which gradients are compared; a stale engine has the shipped ones."""
UNBOUNDED = {"level": "sequence", "upper": 1e30, "veto": None}
TOP_P = 0.95
TOP_K = 2
COORDINATES = 40_000
"""Of 0.9 million, drawn at random: enough for a ratio of lengths, and few enough to keep every batch."""
Logits = Callable[[Tensor], Tensor]
Key = tuple[str, str]
"""Engine and correction."""
ON_POLICY: Key = ("", "")


class Measured(NamedTuple):
    """Of one engine and correction."""

    engine: str
    correction: str
    k3: float
    """Of the tokens that the engine samples, nats."""
    unseen: float
    """Share of the responses on policy that the engine never gives."""
    bias: float
    """Length of the expected gradient's error, over the length of the gradient on policy."""
    low: float
    """The same, two standard errors of its square lower, or 0; by the jackknife over batches."""
    high: float
    """Two standard errors higher."""


def main(batches: int = 96) -> None:
    torch.set_num_threads(1)
    rows = [[*row[:2], *(f"{number:.3g}" for number in row[2:])] for row in measure(batches)]
    with FILE.open("w", newline="") as lines:
        csv.writer(lines, lineterminator="\n").writerows([Measured._fields, *rows])


def measure(batches: int, sequences: int = 64, updates: int = UPDATES) -> list[Measured]:
    """Sample, and compare.

    Args:
        batches: Independent samples.
        sequences: Responses in each, to as many prompts.
        updates: Steps on policy from the shipped weights.
    """
    policy = fitted(Run("fp32", "monitor", 0), f"trainer.max_steps={updates}")[0].policy
    engines, settings = engines_of(policy), {"none": None, **presets()}
    chance, kept = torch.Generator().manual_seed(0), _coordinates(policy)
    draw = sample(policy, sequences)
    draws = [gradients(policy, draw(chance), engines, settings, kept) for _ in range(batches)]
    on_policy = torch.stack([found[ON_POLICY] for found, _ in draws])
    return [
        Measured(
            engine,
            correction,
            *torch.stack([mismatch[engine] for _, mismatch in draws]).mean(0).tolist(),
            *relative_length(torch.stack([found[engine, correction] for found, _ in draws]), on_policy),
        )
        for engine in engines
        for correction in settings
    ]


def sample(policy: nn.Module, sequences: int) -> Callable[[torch.Generator], Responses]:
    """Draws batches of responses on policy, to a prompt each."""
    sampler = GroupSampler(CTranslate2Engine("float32", seed=0), SortDigits(), n=1, train_batch_size=sequences)
    sampler.engine.sync_weights(policy)
    return lambda chance: pad_groups(sampler.sample(chance).groups)


def engines_of(policy: nn.Module) -> dict[str, Logits]:
    """What each engine samples from. int8 is missing: CTranslate2 rounds activations, which PyTorch cannot repeat."""
    bf16, int4, stale = copy.deepcopy(policy), copy.deepcopy(policy), tiny_llama()
    round_to_bfloat16(bf16)
    round_to_int4(int4)
    models = {"bf16": bf16, "int4": int4, "stale": stale.eval()}
    return {
        **{name: lambda ids, model=model: model(ids).logits for name, model in models.items()},
        f"top-p {TOP_P:g}": lambda ids: nucleus(policy(ids).logits),
        f"top-k {TOP_K}": lambda ids: likeliest(policy(ids).logits),
    }


def nucleus(logits: Tensor) -> Tensor:
    """Minus infinity for all but the likeliest tokens that together have a probability of ``TOP_P``."""
    probability, order = logits.softmax(-1).sort(descending=True)
    outside = (probability.cumsum(-1) - probability >= TOP_P).gather(-1, order.argsort(-1))
    return logits.masked_fill(outside, -torch.inf)


def likeliest(logits: Tensor) -> Tensor:
    """Minus infinity for all but the ``TOP_K`` likeliest tokens."""
    return logits.masked_fill(logits < logits.topk(TOP_K).values[..., -1:], -torch.inf)


def presets() -> dict[str, dict[str, Any]]:
    """Settings of ``importance_weights`` for each correction of the grid, and for the sequence level without bounds."""
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        configs = {name: RolloutISConfig.from_mapping(compose(f"algorithm/{name}")) for name in ALGORITHMS[1:]}
    return {**{name: _settings(config) for name, config in configs.items()}, "sequence, no bound": UNBOUNDED}


def _settings(config: RolloutISConfig) -> dict[str, Any]:
    return {
        "level": config.rollout_is_level,
        "mode": config.rollout_is_mode,
        "upper": config.rollout_is_threshold,
        "lower": config.rollout_is_threshold_lower,
        "veto": config.rollout_is_veto_threshold,
    }


def gradients(
    policy: nn.Module,
    responses: Responses,
    engines: Mapping[str, Logits],
    settings: Mapping[str, dict[str, Any] | None],
    kept: Tensor,
) -> tuple[dict[Key, Tensor], dict[str, Tensor]]:
    """What one batch says of every engine and correction.

    Args:
        policy: The one that sampled, and that is differentiated.
        responses: One batch.
        engines: What each engine samples from.
        settings: Corrections.
        kept: Which coordinates of the gradient to return.

    Returns:
        The gradient on policy, under ``ON_POLICY``, and what every estimator adds to it, under engine and correction;
        and by engine its K3 and the share of responses that it never gives.
    """
    log_prob = _log_prob(lambda ids: policy(ids).logits, responses.token_ids)
    old, mask = log_prob.detach(), responses.response_mask
    advantage = (responses.rewards - responses.rewards.mean())[:, None] * mask

    def gradient(coefficient: Tensor) -> Tensor:
        loss = -(coefficient * advantage * log_prob).sum() / len(mask)
        parts = torch.autograd.grad(loss, list(policy.parameters()), retain_graph=True)
        return torch.cat([part.flatten() for part in parts])[kept]

    found, mismatch = {ON_POLICY: gradient(mask.float())}, {}
    for engine, logits in engines.items():
        with torch.no_grad():
            rollout = _log_prob(logits, responses.token_ids)
        log_ratio = (rollout - old).masked_fill(~mask, 0.0)
        chance = log_ratio.sum(1, keepdim=True).exp()  # of the engine to sample this response, over the policy's
        of_token = (-log_ratio).expm1() + log_ratio
        k3 = (chance * of_token.where(chance > 0, 0.0)).sum() / (chance * mask).sum()
        mismatch[engine] = torch.stack([k3, (chance == 0).float().mean()])
        for name, chosen in settings.items():
            weight = mask.float() if chosen is None else importance_weights(old, rollout, mask, **chosen).weight
            found[engine, name] = gradient(chance * weight - mask.float())
    return found, mismatch


def _log_prob(logits: Logits, token_ids: Tensor) -> Tensor:
    return token_log_probs(logits(token_ids[:, :-1]), token_ids[:, 1:])


def relative_length(errors: Tensor, gradients: Tensor) -> tuple[float, float, float]:
    """Length of one expectation over that of another, from samples of both, and two standard errors about it.

    The square of a sample mean's length is too large by chance alone; products of different batches are not.

    Args:
        errors: (batches, coordinates), independent between batches.
        gradients: The same for the other.

    Example:
        >>> relative_length(torch.full((5, 2), 0.25), torch.ones(5, 2))
        (0.25, 0.25, 0.25)
    """
    inner = [(x.double() @ x.double().T) for x in (errors, gradients)]
    everything = torch.ones(len(errors), dtype=torch.bool)
    square = _ratio(inner, everything)
    without = torch.stack([_ratio(inner, everything.index_fill(0, torch.tensor(i), False)) for i in range(len(errors))])
    error = ((len(without) - 1) * (without - without.mean()).square().mean()).sqrt()
    around = torch.stack([square, square - 2 * error, square + 2 * error])
    length, low, high = around.clamp(min=0.0).sqrt().tolist()
    return length, low, high


def _ratio(inner: list[Tensor], batches: Tensor) -> Tensor:
    above, below = (x[batches][:, batches] for x in inner)
    return (above.sum() - above.trace()) / (below.sum() - below.trace())


def _coordinates(policy: nn.Module) -> Tensor:
    weights = sum(weight.numel() for weight in policy.parameters())
    return torch.randperm(weights, generator=torch.Generator().manual_seed(0))[:COORDINATES]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
