"""One pass over the tokens of a batch, on any device and in any layout, in operations that compile to one loop."""

from __future__ import annotations

from typing import NamedTuple

from lightning_rollout_is.choices import Mode
from lightning_rollout_is.functional.aggregate import Units, token_units
from lightning_rollout_is.functional.bound import bound
from lightning_rollout_is.functional.excess import clamped
from lightning_rollout_is.functional.layout import Layout
from lightning_rollout_is.functional.log_ratio import LogRatio
from lightning_rollout_is.functional.sums import TokenSums, token_sums
from lightning_rollout_is.functional.thresholds import Thresholds
from lightning_rollout_is.types import TokenFloat


class Tokens(NamedTuple):
    """The log ratios of a batch, and how they form sequences."""

    log_ratio: LogRatio
    layout: Layout

    def indicated(self, thresholds: Thresholds) -> tuple[TokenFloat, TokenSums]:
        """1 on valid tokens and 0 elsewhere, and the sums over each sequence."""
        sums = token_sums(self.log_ratio, self.layout, thresholds.log_veto)
        return self.log_ratio.valid.to(self.log_ratio.log_ratio.dtype), sums

    def weighed(self, mode: Mode, thresholds: Thresholds) -> tuple[TokenFloat, TokenSums, Units]:
        """Each token's own weight after its bounds, 0 where it is not valid; the sums; what the raw weights are."""
        sums = token_sums(self.log_ratio, self.layout, thresholds.log_veto)
        units = token_units(self.log_ratio, sums, self.layout, thresholds)
        weight = bound(clamped(self.log_ratio.log_ratio), mode, thresholds)
        return weight.where(self.log_ratio.valid, 0.0), sums, units
