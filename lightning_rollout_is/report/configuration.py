"""The configuration that a run was started with, from wherever one was left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_rollout_is.secret_settings import hide_secrets

PLACES = ("hparams.yaml", ".hydra/config.yaml")
"""Lightning's, then Hydra's, which is the more complete and counts where both hold a key."""
LEVELS_UP = 2
"""A logger writes into a folder of its own inside Hydra's: ``tensorboard/``, or ``lightning_logs/version_0/``."""


def read_configuration(folder: Path, hyperparameters: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Settings by dotted key, as text.

    Args:
        folder: Of the event files.
        hyperparameters: From the event files themselves; a configuration file counts more.

    Returns:
        The settings, and notes on files that could not be read.
    """
    settings = dict(_flat(hyperparameters, separator="/"))
    notes: list[str] = []
    for place in PLACES:
        file = next((above / place for above in _at_and_above(folder) if (above / place).is_file()), None)
        if file is not None:
            try:
                settings.update(_flat(_yaml(file)))
            except Exception as error:  # a YAML file of foreign objects can fail in any way, and is a luxury here
                notes.append(f"{file} cannot be read: {str(error).splitlines()[0]}")
    return hide_secrets(settings), notes


def setting(configuration: Mapping[str, str], key: str, default: str = "") -> str:
    """A setting by the end of its dotted key.

    Example:
        >>> setting({"algorithm.rollout_is_level": "token"}, "rollout_is_level")
        'token'
    """
    return next((value for name, value in configuration.items() if f".{name}".endswith(f".{key}")), default)


def differences(configurations: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """The settings in which runs differ, with a dash where a run has none.

    Example:
        >>> differences([{"lr": "1", "seed": "1"}, {"lr": "2", "seed": "1"}, {"seed": "1"}])
        {'lr': ['1', '2', '-']}
    """
    keys = dict.fromkeys(key for configuration in configurations for key in configuration)
    rows = {key: [configuration.get(key, "-") for configuration in configurations] for key in keys}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}


def _at_and_above(folder: Path) -> list[Path]:
    resolved = folder.resolve()
    return [resolved, *resolved.parents][: LEVELS_UP + 1]


def _yaml(file: Path) -> Any:
    from omegaconf import OmegaConf

    # Interpolations stay as they are written: what they refer to may exist in the run's process alone.
    return OmegaConf.to_container(OmegaConf.load(file), resolve=False) or {}


def _flat(settings: Any, prefix: str = "", separator: str = ".") -> Iterator[tuple[str, str]]:
    if isinstance(settings, Mapping) and settings:
        for key, value in settings.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key).replace(separator, "."), separator)
    elif prefix:
        yield prefix, "null" if settings is None else str(settings)
