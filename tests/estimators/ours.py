"""The same gradients by the library's public path: logits, log-probs, PPO loss, mixin, aggregation, autograd."""

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import lightning
import torch
from torch import Tensor

from lightning_rollout_is import RolloutISMixin, aggregate_loss, ppo_clip_loss, token_log_probs
from tests.estimators.exact import LONGEST, NO_WEIGHT, PREFIXES, TOKENS, Gradient, Policy, Setting, World, steps

WIDTH = LONGEST + 1  # a column of padding at least


class Batch(NamedTuple):
    """Trajectories, one row each. Padding holds what would show if anything looked at it."""

    prefix: Tensor
    token: Tensor
    mask: Tensor
    old_log_prob: Tensor
    rollout_log_prob: Tensor
    advantages: Tensor
    cu_seqlens: Tensor | None = None

    def packed(self) -> "Batch":
        """The same end to end, without padding."""
        inside = self.mask == 1
        ends = torch.nn.functional.pad(inside.sum(1).cumsum(0), (1, 0)).int()
        return Batch(*(tensor[inside] for tensor in self[:5]), self.advantages, ends)


class Tabular(RolloutISMixin, lightning.LightningModule):
    """Logits for each prefix."""

    def __init__(self, policy: Policy, algorithm: dict[str, Any], details: bool) -> None:
        super().__init__()
        rows = [[float(policy[prefix][token]) for token in TOKENS] for prefix in PREFIXES]
        self.logits = torch.nn.Parameter(torch.tensor(rows, dtype=torch.float64).log())
        self.configure_rollout_is(algorithm, details=details)

    def log_prob(self, batch: Batch) -> Tensor:
        return token_log_probs(self.logits[batch.prefix], batch.token)

    def token_loss(self, batch: Batch, **clips: Any) -> Tensor:
        clips["cu_seqlens"] = batch.cu_seqlens
        loss = ppo_clip_loss(self.log_prob(batch), batch.old_log_prob, batch.advantages, batch.mask, **clips).token_loss
        return self.rollout_is_loss(loss, *batch[3:5], batch.mask, batch.cu_seqlens)

    def ascent(self, loss: Tensor) -> Gradient:
        (gradient,) = torch.autograd.grad(loss, self.logits)
        rows = (-gradient).tolist()
        return {(p, t): rows[i][j] for i, p in enumerate(PREFIXES) for j, t in enumerate(TOKENS)}


def batch_of(world: World, trajectories: Sequence[str], advantages: Sequence[Fraction] | None = None) -> Batch:
    chosen = [world.advantage[t] for t in trajectories] if advantages is None else advantages
    return Batch(
        rows(trajectories, lambda p, t: PREFIXES.index(p), 0, torch.int64),
        rows(trajectories, lambda p, t: TOKENS.index(t), 0, torch.int64),
        rows(trajectories, lambda p, t: 1, 0, torch.int64),
        rows(trajectories, lambda p, t: float(world.train[p][t]), 1e-9).log(),
        rows(trajectories, lambda p, t: float(world.rollout[p][t]), float("nan")).log(),
        torch.tensor([float(a) for a in chosen], dtype=torch.float64),
    )


def rows(trajectories: Sequence[str], value: Any, padding: float, dtype: torch.dtype = torch.float64) -> Tensor:
    lists = [[value(p, t) for p, t in steps(trajectory)] for trajectory in trajectories]
    return torch.tensor([row + [padding] * (WIDTH - len(row)) for row in lists], dtype=dtype)


def algorithm(setting: Setting) -> dict[str, Any]:
    if setting.level == "none":
        return {"rollout_is_threshold": None}
    return {
        "rollout_is_threshold": 1e8 if setting.upper is None else float(setting.upper),
        "rollout_is_threshold_lower": float(setting.lower) or None,
        "rollout_is": True,
        "rollout_is_level": setting.level,
        "rollout_is_mode": setting.mode,
        "rollout_is_veto_threshold": float(setting.veto) or None,
    }


def tabular(policy: Policy, setting: Setting = NO_WEIGHT, details: bool = False) -> Tabular:
    with warnings.catch_warnings():
        # Thresholds without effect, and ones that bind on three tokens, are outside the recommended ranges.
        warnings.simplefilter("ignore", UserWarning)
        return Tabular(policy, algorithm(setting), details)


def estimate(module: Tabular, world: World, trajectory: str, mode: str = "seq-mean-token-sum") -> Gradient:
    """What a batch of one trajectory proposes."""
    batch = batch_of(world, [trajectory])
    return module.ascent(aggregate_loss(module.token_loss(batch), batch.mask, mode))


def assert_close(ours: Gradient, exact: Gradient, tolerance: float = 1e-12) -> None:
    for key in [(prefix, token) for prefix in PREFIXES for token in TOKENS]:
        difference = abs(float(ours.get(key, 0)) - float(exact.get(key, 0)))
        assert difference <= tolerance, (key, ours.get(key, 0), exact.get(key, 0))
