"""Which runs lie below a folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lightning_rollout_is.event_files import Curve, read_event_log
from lightning_rollout_is.healthy_ranges import RANGES
from lightning_rollout_is.report.configuration import read_configuration

ANONYMOUS = ("tensorboard", "lightning_logs")
"""Folders that a logger makes, which tell no run from another."""


class Run(NamedTuple):
    """What one folder of event files says."""

    name: str
    folder: Path
    prefix: str
    """What the names of the mismatch statistics begin with."""
    curves: Mapping[str, Curve]
    """Every scalar, by its full name."""
    configuration: Mapping[str, str]
    notes: Sequence[str]
    """What could not be read, in words."""

    @property
    def mismatch(self) -> dict[str, Curve]:
        """The statistics that are this package's, by name without prefix."""
        return {
            name.removeprefix(self.prefix): curve
            for name, curve in self.curves.items()
            if name.startswith(self.prefix) and _is_ours(name.removeprefix(self.prefix))
        }

    @property
    def last_step(self) -> int:
        """The largest step of any statistic."""
        return max(curve.steps[-1] for curve in self.mismatch.values())


class UnreadableError(Exception):
    """There is no run where one was expected; the message says what there is instead."""


def folders_of_runs(log_dir: Path) -> list[Path]:
    """Every folder at or below one that holds an event file.

    Raises:
        UnreadableError: There is none.
    """
    if not log_dir.exists():
        raise UnreadableError(f"{log_dir} does not exist; give the folder that your logger writes to")
    if not log_dir.is_dir():
        raise UnreadableError(f"{log_dir} is a file; give the folder that holds it, {log_dir.parent}")
    folders = sorted({file.parent for file in log_dir.rglob("*tfevents*") if file.is_file()})
    if not folders:
        raise UnreadableError(
            f"no TensorBoard event file (events.out.tfevents.*) in {log_dir} or below; give the folder that your "
            "logger writes to: trainer.logger.log_dir"
        )
    return folders


def read_run(folder: Path, name: str, prefix: str | None = None, advance: Callable[[int], None] | None = None) -> Run:
    """Read one folder of event files.

    Args:
        folder: It holds event files.
        name: What to call the run.
        prefix: What the names of the statistics begin with; ``None`` finds out.
        advance: Called now and then with the number of bytes that were read since the last call.

    Raises:
        UnreadableError: It holds none of this package's statistics.
    """
    log = read_event_log(folder, advance)
    found = prefixes(log.curves) if prefix is None else [prefix]
    settings, notes = read_configuration(folder, log.hyperparameters)
    notes = [*log.notes, *notes]
    if len(found) > 1:
        others = " and ".join(repr(other) for other in found[1:])
        notes.append(f"statistics under {found[0]!r} are shown; there are more under {others}: choose with --prefix")
    run = Run(name, folder, found[0] if found else "", log.curves, settings, notes)
    if not found or not run.mismatch:
        raise UnreadableError(f"{folder}: {_what_there_is(log.curves, log.notes, prefix)}")
    if all(len(curve.steps) == 1 for curve in run.mismatch.values()):
        notes.append("there is one point only: too little to judge a run by")
    return run


def prefixes(tags: Iterable[str]) -> list[str]:
    """What the names of the statistics begin with; the one with most of them first.

    Example:
        >>> prefixes(["loss", "is/mismatch_kl", "is/rollout_is_mean", "b/rollout_is_mean"])
        ['is/', 'b/']
    """
    found = Counter(tag.removesuffix(name) for tag in tags for name in RANGES if tag.endswith(name))
    return [prefix for prefix, _ in found.most_common()]


def names_of(folders: Sequence[Path]) -> list[str]:
    """A short name for each folder, no two the same: what they do not share of their paths.

    Example:
        >>> names_of([Path("/runs/int4/tensorboard"), Path("/runs/fp32/tensorboard")])
        ['int4', 'fp32']
        >>> names_of([Path("/runs/int4/tensorboard")])
        ['int4']
    """
    if not folders:
        return []
    resolved = [folder.resolve() for folder in folders]
    common = Path(os.path.commonpath(resolved))
    full = [folder.relative_to(common).as_posix() for folder in resolved]
    short = [_short(name) or _short(at.as_posix()).rsplit("/", 1)[-1] for name, at in zip(full, resolved, strict=True)]
    return short if len(set(short)) == len(short) else full


def _short(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in (*ANONYMOUS, "."))


def _is_ours(name: str) -> bool:
    return name.startswith(("rollout_is_", "mismatch_"))


def _what_there_is(curves: Mapping[str, Curve], notes: Sequence[str], prefix: str | None) -> str:
    if not curves:
        return "; ".join(["no scalar in its event files", *notes])
    tags = sorted(curves)
    some = ", ".join(tags[:5]) + (", ..." if len(tags) > 5 else "")
    if prefix is not None:
        return f"no mismatch statistic under the prefix {prefix!r}, but {some}; leave --prefix out to have it found"
    return f"no mismatch statistic among its scalars ({some}); add RolloutISCallback to the Trainer's callbacks"
