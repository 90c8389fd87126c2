"""The settings of a run, for TensorBoard's pages of hyperparameters and of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lightning_rollout_is.callbacks.boards import Board
from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.secret_settings import hide_secrets

ENGINE = "actor_rollout_ref.rollout.name"
"""Where verl names the rollout engine."""


def plain(value: Any) -> float | str:
    """A number, or text as YAML has it: TensorBoard would show a truth value as 1.0000.

    Example:
        >>> plain(True), plain(None), plain(2.0)
        ('true', 'null', 2.0)
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return value if isinstance(value, int | float) else str(value)


def settings_of(board: Board, config: RolloutISConfig) -> dict[str, Any]:
    """The algorithm block, then everything else that the logger was given with ``log_hyperparams``.

    Args:
        board: Its logger knows the rest.
        config: The algorithm block.

    Returns:
        Numbers, text and truth values by dotted key.
    """
    algorithm = _algorithm(config)
    rest = {key: value for key, value in _flat(board.logger.hparams) if key not in algorithm}
    return hide_secrets({**algorithm, **rest})


def write_hyperparameters(board: Board, config: RolloutISConfig, metrics: Sequence[str]) -> None:
    """Fill TensorBoard's page of hyperparameters: the algorithm block, and few others that tell runs apart.

    TensorBoard keeps the first that it finds of a run: what Lightning wrote because the module saves its
    hyperparameters stays. It shows the first five in the order of the alphabet, so a whole configuration would hide
    the block.

    Args:
        board: Where to.
        config: The algorithm block.
        metrics: Keys of curves, whose last values stand beside the settings.
    """
    from torch.utils.tensorboard.summary import hparams

    telling = {ENGINE, *_algorithm(config)}
    settings = settings_of(board, config).items()
    shown = {key: plain(value) for key, value in settings if key in telling or "." not in key}
    if board.writer.file_writer is not None:
        outcomes = dict.fromkeys(map(board.tag, metrics), 0.0)
        for summary in hparams(shown, outcomes):  # type: ignore[no-untyped-call]
            board.writer.file_writer.add_summary(summary)


def _algorithm(config: RolloutISConfig) -> dict[str, Any]:
    return {f"algorithm.{name}": value for name, value in vars(config).items()}


def _flat(settings: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(settings, Mapping) and settings:
        for key, value in settings.items():
            yield from _flat(value, f"{above}.{key}" if above else str(key))
    elif above:
        yield above, settings
