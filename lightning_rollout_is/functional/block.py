"""The arithmetic of one block of sequences, written over a few small tensors that stay in the cache of a CPU.

It is that of log_ratio.py, sums.py, aggregate.py and bound.py, in the operations that are vectorised on a CPU:
``where``, comparisons that give bool and sums of bool are not, and take five times as long as floating point.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.choices import Mode
from lightning_rollout_is.functional.excess import LOG_WEIGHT_LIMIT
from lightning_rollout_is.functional.log_ratio import MISSING_AT_MOST
from lightning_rollout_is.functional.thresholds import Thresholds

_FAR = 1e30  # beyond any log weight


class Block(NamedTuple):
    """Some sequences of a batch, and tensors to write over; (rows, seq) each."""

    old_log_prob: Tensor
    rollout_log_prob: Tensor
    response_mask: Tensor
    valid: Tensor
    """Gets 1 on valid tokens and 0 elsewhere."""
    log_weight: Tensor
    """Gets the clamped log ratio, nats; 0 where not valid."""
    excess: Tensor
    """Gets the raw weight minus 1."""
    spare: Tensor
    wide: Tensor
    """In float64, for sums. ``sum(dtype=float64)`` would make a tensor of its own each time."""

    def read(self, log_veto: float) -> tuple[list[Tensor], list[Tensor]]:
        """Sums over each sequence, (rows,) each.

        Args:
            log_veto: Below 0, since the log ratio of a token that is not valid is 0.

        Returns:
            In float64: log ratio, rollout log-prob, K3. Counts, which are exact in float32: valid tokens, tokens inside
            the mask, catastrophic tokens, malformed values.
        """
        inside, malformed = self._indicate()
        self._validate()
        old, rollout = self.log_weight, self.excess
        rollout_sum, log_ratio = self._sum(rollout), old.sub_(rollout)
        sums = [self._sum(log_ratio), rollout_sum]
        catastrophic = torch.lt(log_ratio, log_veto, out=self.spare).sum(-1)
        capped = torch.clamp(log_ratio, max=LOG_WEIGHT_LIMIT, out=self.spare)
        torch.expm1(log_ratio.clamp_(-LOG_WEIGHT_LIMIT, LOG_WEIGHT_LIMIT), out=self.excess)
        k3 = self._sum(torch.sub(self.excess, capped, out=self.spare))
        return [*sums, k3], [self.valid.sum(-1), inside, catastrophic, malformed]

    def weigh(self, weight: Tensor, mode: Mode, thresholds: Thresholds) -> tuple[list[Tensor], list[Tensor]]:
        """Write each token's weight after its bounds; the block has been read, and is spent.

        Returns:
            Of the raw weights, (rows,) each. In float64: excess, bounded excess, its square. Not widened: counts above
            and below the thresholds, largest and smallest log weight.
        """
        upper, lower = thresholds.upper - 1.0, thresholds.lower - 1.0
        high = torch.gt(self.excess, upper, out=self.spare).sum(-1)
        low = torch.lt(self.excess, lower, out=self.spare).sum(-1)
        torch.exp(self.log_weight, out=weight).mul_(self.valid)
        if mode == "truncate":
            weight.clamp_(max=thresholds.upper)
        else:
            weight.mul_(torch.le(self.excess, upper, out=self.spare))
            weight.mul_(torch.ge(self.excess, lower, out=self.spare))
        excess, bounded = self._sum(self.excess), self.wide.clamp_(lower, upper)
        squares = torch.linalg.vector_norm(bounded, dim=-1).square_()
        return [excess, bounded.sum(-1), squares], [high, low, *self._extremes()]

    def _indicate(self) -> tuple[Tensor, Tensor]:
        """Tokens inside the mask, and how far its values are from being 0 or 1."""
        mask = self.response_mask
        valid = self.valid.copy_(mask.view(torch.int8) if mask.dtype == torch.bool else mask)
        inside = valid.sum(-1)
        if mask.dtype == torch.bool:
            return inside, torch.zeros_like(inside)
        return inside, torch.sub(valid, 1.0, out=self.spare).mul_(valid).abs_().sum(-1)

    def _validate(self) -> None:
        """Take missing tokens out of ``valid``; put the log-probs that remain into ``log_weight`` and ``excess``."""
        # The maximum is NaN if either is.
        largest = torch.maximum(self.old_log_prob, self.rollout_log_prob, out=self.spare)
        self.valid.mul_(largest.lt_(torch.inf))
        self.valid.mul_(torch.gt(self.rollout_log_prob, MISSING_AT_MOST, out=self.spare))
        _keep(self.old_log_prob, self.valid, out=self.log_weight)
        _keep(self.rollout_log_prob, self.valid, out=self.excess)

    def _sum(self, x: Tensor) -> Tensor:
        return self.wide.copy_(x).sum(-1)

    def _extremes(self) -> tuple[Tensor, Tensor]:
        away = self.valid.sub_(1.0).mul_(_FAR)
        largest = torch.add(self.log_weight, away, out=self.spare).amax(-1)
        return largest, self.log_weight.sub_(away).amin(-1)


def _keep(x: Tensor, valid: Tensor, out: Tensor) -> None:
    """``x`` where ``valid`` is 1; 0 where it is 0, whatever ``x`` is there: what times 0 is NaN becomes 0."""
    torch.mul(x, valid, out=out).nan_to_num_(0.0, torch.inf, -torch.inf)
