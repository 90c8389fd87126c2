"""What TensorBoard gets beside curves and histograms: the page of charts, settings, and the verdict in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lightning.pytorch import Trainer

from lightning_rollout_is.callbacks.boards import boards_of
from lightning_rollout_is.callbacks.limits import limits_beside, limits_prefix
from lightning_rollout_is.callbacks.observers import WrittenPoint, judges_of
from lightning_rollout_is.callbacks.page import Page, pages_of, write_pages
from lightning_rollout_is.callbacks.settings import settings_of, write_hyperparameters
from lightning_rollout_is.callbacks.standing import Standing
from lightning_rollout_is.callbacks.words import configuration_words, verdict_words
from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.health import Finding

OUTCOMES = ("mismatch_k3_kl", "mismatch_kl", "rollout_is_eff_sample_size")
"""Statistics that stand beside the hyperparameters, after rewards."""


class Panels:
    """Writes the configuration once a run, and the verdict whenever it changes and at the end."""

    def __init__(self) -> None:
        self.begin(afresh=True)

    def begin(self, afresh: bool) -> None:
        """Begin a run, or go on with one that has a past."""
        self.page: Page | None = None
        if afresh:
            self.standing = Standing()
        self._said: Collection[str] | None = None
        self._point: WrittenPoint | None = None
        self._written: int | None = None

    def beside(self, numbers: Mapping[str, float], prefix: str, step: int) -> dict[str, float]:
        """The curves for the eye that belong to a point, by key.

        Args:
            numbers: Its values by key.
            prefix: What the keys begin with.
            step: Its x.
        """
        values = {key.removeprefix(prefix): number for key, number in numbers.items()}
        self.standing.observe(values, step)
        counts = {limits_prefix(prefix) + name: count for name, count in self.standing.counts().items()}
        return {**counts, **limits_beside(values, prefix)}

    def add(self, trainer: Trainer, point: WrittenPoint, config: RolloutISConfig) -> None:
        """Take a point of which every observer has been told."""
        if self.page is None:
            self.page = Page(point.prefix, point.numbers.keys())
            self._introduce(trainer, point, config)
        self._point = point
        said = {*self.standing.outside, *(finding.rule for finding in _findings(trainer, point.prefix))}
        if said != self._said:
            self._said = said
            self.end(trainer)

    def end(self, trainer: Trainer) -> None:
        """Write the verdict, unless it lies there already."""
        point = self._point
        if point is None or self._written == point.step:
            return
        self._written = point.step
        words = verdict_words(self.standing, _findings(trainer, point.prefix), point.step)
        for board in boards_of(trainer):
            board.writer.add_text(board.tag(f"{point.prefix}health"), words, point.step)

    def _introduce(self, trainer: Trainer, point: WrittenPoint, config: RolloutISConfig) -> None:
        rewards = [key for key in trainer.logged_metrics if "reward" in key]
        metrics = [*rewards, *(f"{point.prefix}{name}" for name in OUTCOMES)]
        pages = pages_of(trainer)
        for board in boards_of(trainer):
            write_pages(board, pages)
            settings = settings_of(board, config)
            board.writer.add_text(board.tag(f"{point.prefix}settings"), configuration_words(config, settings), 0)
            if getattr(trainer, "enable_autolog_hparams", True):  # releases without it always log them
                write_hyperparameters(board, config, metrics)


def _findings(trainer: Trainer, prefix: str) -> list[Finding]:
    return [finding for judge in judges_of(trainer) for finding in judge.findings if finding.metric.startswith(prefix)]
