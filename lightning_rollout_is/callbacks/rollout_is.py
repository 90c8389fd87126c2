"""One point per optimizer step and curve, to every logger of the Trainer."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_rollout_is.callbacks.agreement import require_agreement, settings_of
from lightning_rollout_is.callbacks.complaints import Complaints
from lightning_rollout_is.callbacks.measured import (
    NO_STEP_SEEN,
    metrics_of,
    require_at_least,
    require_metrics,
    set_deferral,
)
from lightning_rollout_is.callbacks.outlets import Outlets
from lightning_rollout_is.callbacks.page import Page
from lightning_rollout_is.callbacks.point import Point, Reading
from lightning_rollout_is.callbacks.steps import begins_without_gradient, logged_step
from lightning_rollout_is.callbacks.transfer import Transfer
from lightning_rollout_is.first_look import FirstLook
from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics

_log = logging.getLogger(__name__)


class RolloutISCallback(Callback):
    """Writes the mismatch statistics of a module with :class:`RolloutISMixin`.

    A point covers one optimizer step: all its micro-batches, on all ranks. It lies at the step at which Lightning puts
    the module's own logged values, whatever ``log_every_n_steps`` is, and reaches every logger of the Trainer and
    ``trainer.callback_metrics``, so that ``ModelCheckpoint`` and ``EarlyStopping`` can monitor it. A value that is not
    defined is not written. Nothing is logged while the module's threshold is null. Callbacks of the Trainer that have
    a method ``on_rollout_is_point`` are told of each point (:class:`~lightning_rollout_is.callbacks.PointObserver`).

    Faulty input of one rank stops all of them, with the same words, at the next point: a rank that raised by itself
    would leave the others waiting for its gradient. Until then a batch that was refused adds nothing to the loss (all
    of it where ``rollout_is`` is false). Malformed values, of the mask or of ``cu_seqlens``, leave out the point at
    which they come out; they stop training where the weights are applied, and are warned of once where they are not.

    On CUDA the values travel while training goes on. A point, and the faults that it brings out, then comes one
    optimizer step late, at its own x, and ``callback_metrics`` lags by as much. The first point is written at once; so
    is every point while a checkpoint or a learning-rate schedule of the Trainer monitors one of the keys. Whatever is
    under way is written before validation, before a checkpoint that can be resumed from, at the end of an epoch and of
    training, and when training fails.

    Keys, behind the prefix: ``rollout_is_mean``, ``_std``, ``_min``, ``_max``, ``_eff_sample_size``,
    ``_veto_fraction``, ``_catastrophic_token_fraction``, ``_ratio_fraction_high``, ``_ratio_fraction_low``,
    ``_missing_fraction``; ``rollout_is_seq_mean``, ``_std``, ``_min``, ``_max``, ``_max_deviation``,
    ``_fraction_high``, ``_fraction_low``; in mode ``"mask"`` also ``rollout_is_masked_fraction`` and
    ``rollout_is_seq_masked_fraction``; ``mismatch_training_ppl``, ``_rollout_ppl``, ``_training_log_ppl``,
    ``_rollout_log_ppl``, ``_log_ppl_diff``, ``_log_ppl_abs_diff``, ``_log_ppl_diff_max``, ``_log_ppl_diff_min``,
    ``_ppl_ratio``, ``_kl``, ``_k3_kl``.

    Args:
        every_n_steps: Write at every n-th optimizer step. Steps between are neither computed nor synchronised; their
            faults come out with the next point, or at the end of training.
        prefix: Put before each key instead of the metric's own ``"mismatch/"``.
        flush_seconds: How much of the curves a killed process may lose: after a point, loggers write out what they
            hold if that many seconds have passed since they last did.
        histogram_every_n_steps: TensorBoard gets distributions at first and last point, and each n-th step; 0: never.
        prog_bar: Statistics on Lightning's progress bar, such as ``("ess", "kl", "k3")``: names without
            ``rollout_is_`` or ``mismatch_``, or full ones.
        tensorboard_page: Whether TensorBoard gets a page of charts with healthy ranges (custom scalars), the settings
            of the run (text, hyperparameters), and in words what is wrong with it (text).

    Raises:
        ValueError: ``every_n_steps`` is under 1, or ``histogram_every_n_steps`` under 0.
        ValueError: At the start of ``fit``, ``prog_bar`` names what is no statistic of the module.
        ValueError: While training, on every rank: some rank's input was refused, or made the weights NaN.
        MisconfigurationException: At the start of ``fit``, the module has no rollout importance sampling, or the ranks
            have different settings of it.
    """

    transfer: ClassVar[type[Transfer]] = Transfer
    """How the values get to the host."""

    def __init__(
        self,
        every_n_steps: int = 1,
        prefix: str | None = None,
        flush_seconds: float = 5.0,
        histogram_every_n_steps: int = 50,
        prog_bar: Sequence[str] = (),
        tensorboard_page: bool = True,
    ) -> None:
        require_at_least(1, every_n_steps=every_n_steps)
        require_at_least(0, histogram_every_n_steps=histogram_every_n_steps)
        self.every_n_steps = every_n_steps
        self.prefix = prefix
        self._outlets = Outlets(flush_seconds, histogram_every_n_steps, prog_bar, tensorboard_page)
        self._step = self._first_step = self._seen_steps = 0
        self._last_point: int | None = None
        self._point: Point | None = None
        self._keys: Collection[str] = ()
        self._window_closed = False
        self._unread = False
        self._complaints = Complaints()

    @property
    def state_key(self) -> str:
        """Tells two of these callbacks in one Trainer apart."""
        return self._generate_state_key(every_n_steps=self.every_n_steps, prefix=self.prefix)

    @property
    def page(self) -> Page | None:
        """The charts that lie on TensorBoard's page of custom scalars; ``None`` before the first point."""
        return self._outlets.page

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a module that has nothing to log before any time is spent."""
        # One that derives from the mixin may still take its settings in `configure_model`.
        if stage == "fit" and not hasattr(pl_module, "configure_rollout_is"):
            require_metrics(pl_module)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a module without settings by now, ranks that differ in them, and names that no statistic has."""
        require_metrics(pl_module)
        metrics = metrics_of(pl_module)
        require_agreement(trainer, settings_of(metrics, every_n_steps=self.every_n_steps, prefix=self.prefix))
        self._outlets.check(metrics, self.prefix)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a window with nothing in it."""
        self._first_step = self._seen_steps = trainer.global_step
        self._last_point, self._keys = None, ()
        self._window_closed, self._unread = True, False
        self._outlets.begin(afresh=trainer.global_step == 0)
        set_deferral(pl_module, True)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Begin a new window after an optimizer step.

        Only now, not when the last one was written: until here its values can still be read from the metric.
        """
        metrics = metrics_of(pl_module)
        if metrics is not None and (self._window_closed or begins_without_gradient(trainer, batch_idx)):
            (metrics.reset_statistics if self._unread else metrics.reset)()
        self._window_closed, self._unread = False, True
        self._step = logged_step(trainer)
        if self._last_point is None:
            self._last_point = self._step - 1

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Close the window if an optimizer has stepped."""
        metrics = metrics_of(pl_module)
        if trainer.global_step == self._seen_steps or metrics is None:
            return
        self._seen_steps, self._window_closed = trainer.global_step, True
        self._write(trainer)
        if not self._is_due():
            return
        self._point = self._take(pl_module, metrics)
        if not self._point.under_way or self._is_awaited(trainer):
            self._write(trainer)

    def _is_due(self) -> bool:
        """At Lightning's own interval, or at the first step after it: manual optimisation has batches without one."""
        last = self._step - 1 if self._last_point is None else self._last_point
        return (self._step + 1) // self.every_n_steps > (last + 1) // self.every_n_steps

    def _is_awaited(self, trainer: Trainer) -> bool:
        """Whether something may look at the values at this very step, by what only the first point tells."""
        monitors = [*trainer.checkpoint_callbacks, *trainer.lr_scheduler_configs]
        return not self._keys or any(getattr(each, "monitor", None) in self._keys for each in monitors)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what is under way: callbacks decide by it when validation ends."""
        self._write(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what is under way: callbacks decide by it in this hook, after this one."""
        self._write(trainer)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Write what is under way: a run that goes on from here would not, and faults must not be saved."""
        self._write(trainer)
        # Lightning has asked for the state before.
        checkpoint.setdefault("callbacks", {})[self.state_key] = self.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Since when which values have been out of their healthy range."""
        return self._outlets.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""
        self._outlets.load_state_dict(state_dict)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what is under way, and bring out faults of a window that was not written."""
        set_deferral(pl_module, False)
        self._write(trainer)
        metrics = metrics_of(pl_module)
        if self._unread and metrics is not None:
            self._sound(self._take(pl_module, metrics))
        if metrics is not None and metrics.update_count and trainer.global_step == self._first_step:
            self._complaints.once(NO_STEP_SEEN)
        self._outlets.end(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write what is under way. Whatever the module is used for next, nobody reads its faults there."""
        set_deferral(pl_module, False)
        try:
            self._write(trainer)
            self._outlets.end(trainer)
        except Exception as error:
            # Raised, it would hide what has ended training.
            _log.error("the last mismatch statistics were not written: %s", error)
        finally:
            self._point = None

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write what is under way: the tuner of Lightning leaves training by this hook alone."""
        self._write(trainer)

    def _take(self, pl_module: LightningModule, metrics: RolloutISMetrics) -> Point:
        self._unread = False
        # A module may lend the metrics of one inside it, which keeps the rest.
        look: FirstLook | None = getattr(pl_module, "rollout_is_first_look", None)
        return Point(metrics, self._step, self.prefix, look.unread() if look else (), self.transfer)

    def _write(self, trainer: Trainer) -> None:
        """Write the point that is under way, if there is one."""
        point = self._point
        if point is None:
            return
        reading = self._sound(point)
        if reading is not None and self._outlets.write(trainer, point, reading):
            self._last_point, self._keys = point.step, reading.numbers.keys()
            self._outlets.tell(trainer, point, reading)

    def _sound(self, point: Point) -> Reading | None:
        """What the point says, once its faults are dealt with; ``None`` where it means nothing."""
        reading = point.read()
        self._point = None  # not before: an interrupt while the values are awaited must not lose them
        return reading if self._complaints.sound(point, reading) else None
