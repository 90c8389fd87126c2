"""The same sums for parts of a batch: environments, data sources, turns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_rollout_is.choices import Level
from lightning_rollout_is.functional.aggregate import Units
from lightning_rollout_is.functional.excess import LOG_WEIGHT_LIMIT, clamped, excess_of
from lightning_rollout_is.functional.layout import Layout, accumulation_dtype
from lightning_rollout_is.functional.log_ratio import LogRatio
from lightning_rollout_is.functional.sums import TokenSums
from lightning_rollout_is.functional.thresholds import Thresholds


class GroupSums(NamedTuple):
    """Sums over valid tokens by group, (sequences, groups + 1); the last is what belongs to no group."""

    tokens: Tensor
    inside: Tensor
    """Number of tokens inside the mask, with or without a usable log-prob."""
    excess: Tensor
    """Raw weight minus 1."""
    bounded_excess: Tensor
    bounded_excess_squared: Tensor
    k1: Tensor
    k3: Tensor


def sums_by_group(groups: Tensor, count: int, sums: TokenSums, units: Units) -> GroupSums:
    """Sums of sequences that each belong to one group.

    Args:
        groups: Index of each sequence's group, (sequences,), integer; any other than 0 to ``count - 1`` is none.
        count: Number of groups.
        sums: Of each sequence.
        units: Of each sequence.
    """
    belongs = _membership(groups, count)
    columns = GroupSums(
        sums.tokens,
        sums.inside,
        units.excess,
        units.bounded_excess,
        units.bounded_excess_squared,
        -sums.log_ratio,
        sums.k3,
    )
    return GroupSums(*(column.unsqueeze(-1).where(belongs, 0.0) for column in columns))


def token_sums_by_group(
    groups: Tensor,
    count: int,
    tokens: LogRatio,
    sums: TokenSums,
    units: Units,
    layout: Layout,
    level: Level,
    thresholds: Thresholds,
) -> GroupSums:
    """Sums of tokens that each belong to one group, as the turns of a conversation do.

    Args:
        groups: Index of each token's group, shape of the tokens, integer; any other than 0 to ``count - 1`` is none.
        count: Number of groups.
        tokens: Their log ratios.
        sums: Of each sequence.
        units: Of each sequence.
        layout: How they form sequences.
        level: Of the weights.
        thresholds: Of the weights.
    """
    own = excess_of(clamped(tokens.log_ratio))
    shared = layout.expand(units.excess / sums.tokens.clamp(min=1.0)).where(tokens.valid, 0.0)
    excess = own if level == "token" else shared
    bounded = excess.clamp(thresholds.lower - 1.0, thresholds.upper - 1.0).where(tokens.valid, 0.0)
    columns = GroupSums(
        tokens.valid,
        tokens.inside,
        excess,
        bounded,
        bounded.to(accumulation_dtype(bounded)).square(),
        -tokens.log_ratio,
        own - tokens.log_ratio.clamp(max=LOG_WEIGHT_LIMIT),
    )
    belongs = _membership(groups, count).unbind(-1)
    return GroupSums(*(_by_group(column, belongs, layout) + sums.flaw.unsqueeze(-1) for column in columns))


def _membership(groups: Tensor, count: int) -> Tensor:
    known = (groups >= 0) & (groups < count)
    places = groups.where(known, count)
    return places.unsqueeze(-1) == torch.arange(count + 1, device=groups.device)


def _by_group(column: Tensor, belongs: tuple[Tensor, ...], layout: Layout) -> Tensor:
    none = torch.zeros((), dtype=column.dtype, device=column.device)
    return torch.stack([layout.sum(column.where(members, none)) for members in belongs], -1)
