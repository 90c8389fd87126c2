"""Sequences rejected whole because of one catastrophic token."""

from __future__ import annotations

import math
from typing import NamedTuple

from lightning_rollout_is.functional.layout import Layout
from lightning_rollout_is.functional.log_ratio import LogRatio
from lightning_rollout_is.types import SequenceBool, TokenBool


class Vetoed(NamedTuple):
    """What the veto found."""

    catastrophic: TokenBool
    """Valid token whose ratio is under the veto threshold."""
    vetoed: SequenceBool
    """Sequence with at least one such token: all its weights become 0."""


def veto_sequences(log_ratio: LogRatio, layout: Layout, threshold: float | None) -> Vetoed:
    r"""Find sequences with a token whose ratio :math:`\exp(\ell_t)` is under ``threshold``.

    Args:
        log_ratio: From :func:`compute_log_ratio`; the ratio is compared before any clamp.
        layout: How its tokens form sequences.
        threshold: Smallest ratio that is let pass, above 0; ``None`` vetoes nothing.

    Example:
        >>> import torch
        >>> from lightning_rollout_is.functional.layout import layout_of
        >>> from lightning_rollout_is.functional.log_ratio import compute_log_ratio
        >>> old, rollout, mask = torch.tensor([[-12.0], [-1.0]]), torch.tensor([[-1.0], [-1.0]]), torch.ones(2, 1)
        >>> veto_sequences(compute_log_ratio(old, rollout, mask), layout_of(old), 1e-4).vetoed
        tensor([ True, False])
    """
    smallest = -math.inf if threshold is None else math.log(threshold)
    # A log ratio outside the valid tokens is 0, which a threshold of 1 or more would reject.
    catastrophic = (log_ratio.log_ratio < smallest) & log_ratio.valid
    return Vetoed(catastrophic, layout.sum(catastrophic) > 0)
