"""Values on the Trainer's progress bar."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from lightning.pytorch import Trainer

SHORT = {
    "ess": "rollout_is_eff_sample_size",
    "k3": "mismatch_k3_kl",
    "veto": "rollout_is_veto_fraction",
    "catastrophic": "rollout_is_catastrophic_token_fraction",
    "masked": "rollout_is_masked_fraction",
    "missing": "rollout_is_missing_fraction",
}
"""Names that are shorter than the statistic's without its beginning, which serves as well."""
BEGINNINGS = ("rollout_is_", "mismatch_")


class BarValues:
    """Puts chosen values where every progress bar of Lightning looks for them.

    Args:
        chosen: Names of statistics, as short or as full as one likes.
    """

    def __init__(self, chosen: Iterable[str]) -> None:
        self.chosen = (chosen,) if isinstance(chosen, str) else tuple(chosen)
        self._keys: Mapping[str, str] = {}

    def begin(self, names: Sequence[str], prefix: str) -> None:
        """Find out what was chosen.

        Args:
            names: Statistics of the module, without a prefix.
            prefix: What their keys begin with.

        Raises:
            ValueError: A name means none of them.
        """
        self._keys = {name: prefix + full_name(name.removeprefix(prefix), names) for name in self.chosen}

    def show(self, trainer: Trainer, numbers: Mapping[str, float]) -> None:
        """Show the values of a point, those that are defined. Called on every rank or on none."""
        values = {name: numbers.get(key, math.nan) for name, key in self._keys.items()}
        defined = {name: value for name, value in values.items() if math.isfinite(value)}
        if defined and trainer.progress_bar_callback is not None:
            # `self.log` of the module would put each of them into `callback_metrics` as well, under a second name.
            trainer.progress_bar_metrics.update(defined)


def full_name(chosen: str, names: Sequence[str]) -> str:
    """The statistic that is meant.

    Example:
        >>> names = ["rollout_is_eff_sample_size", "mismatch_kl"]
        >>> [full_name(chosen, names) for chosen in ("ess", "eff_sample_size", "kl", "mismatch_kl")]
        ['rollout_is_eff_sample_size', 'rollout_is_eff_sample_size', 'mismatch_kl', 'mismatch_kl']
        >>> full_name("kll", names)
        Traceback (most recent call last):
        ValueError: prog_bar names 'kll', which is no statistic of this module; allowed: ess, kl, or their full names
    """
    shortest = {full: short for short, full in SHORT.items()}
    plain = {_without_beginning(name): name for name in names}
    short = {shortest.get(name, plain_name): name for plain_name, name in plain.items()}
    meant = {**dict(zip(names, names, strict=True)), **plain, **short}
    if chosen not in meant:
        raise ValueError(
            f"prog_bar names {chosen!r}, which is no statistic of this module; allowed: {', '.join(short)}, or their "
            "full names"
        )
    return meant[chosen]


def _without_beginning(name: str) -> str:
    return next((name.removeprefix(start) for start in BEGINNINGS if name.startswith(start)), name)
