"""One point per optimizer step and curve, to every logger of the Trainer."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from lightning_rollout_is.callbacks.faults import ALL_MISSING, malformation, refusal
from lightning_rollout_is.first_look import FirstLook
from lightning_rollout_is.functional.statistics.faults import FaultMaxima
from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics

NO_STEP_SEEN = (
    "rollouts were recorded, and nothing was logged: under manual optimisation Lightning counts the steps of "
    "self.optimizers() inside training_step alone; step there, with optimizers from configure_optimizers"
)


class RolloutISCallback(Callback):
    """Writes the mismatch statistics of a module with :class:`RolloutISMixin`.

    A point covers one optimizer step: all its micro-batches, on all ranks. It lies at the step at which Lightning puts
    the module's own logged values, whatever ``log_every_n_steps`` is, and reaches every logger of the Trainer and
    ``trainer.callback_metrics``, so that ``ModelCheckpoint`` and ``EarlyStopping`` can monitor it. A value that is not
    defined is not written. Nothing is logged while the module's threshold is null.

    Faulty input of one rank stops all of them, with the same words, at the next point: a rank that raised by itself
    would leave the others waiting for its gradient. Until then a batch that was refused adds nothing to the loss (all
    of it where ``rollout_is`` is false). Malformed values, of the mask or of ``cu_seqlens``, leave out the point at
    which they come out; they stop training where the weights are applied, and are warned of once where they are not.

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

    Raises:
        ValueError: ``every_n_steps`` is under 1.
        ValueError: While training, on every rank: some rank's input was refused, or made the weights NaN.
        MisconfigurationException: At the start of ``fit``, the module has no rollout importance sampling.
    """

    def __init__(self, every_n_steps: int = 1, prefix: str | None = None, flush_seconds: float = 5.0) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps = {every_n_steps} is not allowed; allowed: 1 or more")
        self.every_n_steps = every_n_steps
        self.prefix = prefix
        self.flush_seconds = flush_seconds
        self._flushed = -math.inf
        self._step = self._first_step = self._seen_steps = 0
        self._last_point: int | None = None
        self._window_closed = False
        self._unread = False
        self._warned: set[str] = set()

    @property
    def state_key(self) -> str:
        """Tells two of these callbacks in one Trainer apart."""
        return self._generate_state_key(every_n_steps=self.every_n_steps, prefix=self.prefix)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a module that has nothing to log before any time is spent."""
        # One that derives from the mixin may still take its settings in `configure_model`.
        if stage == "fit" and not hasattr(pl_module, "configure_rollout_is"):
            _require_metrics(pl_module)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a module that has taken no settings by now."""
        _require_metrics(pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a window with nothing in it."""
        self._first_step = self._seen_steps = trainer.global_step
        self._last_point = None
        self._window_closed, self._unread = True, False
        _set_deferral(pl_module, True)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Begin a new window after an optimizer step.

        Only now, not when the last one was written: until here its values can still be read from the metric.
        """
        metrics = _metrics_of(pl_module)
        if metrics is not None and (self._window_closed or _begins_with_no_gradient(trainer, batch_idx)):
            (metrics.reset_statistics if self._unread else metrics.reset)()
        self._window_closed, self._unread = False, True
        self._step = _logged_step(trainer)
        if self._last_point is None:
            self._last_point = self._step - 1

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Close the window if an optimizer has stepped."""
        metrics = _metrics_of(pl_module)
        if trainer.global_step == self._seen_steps or metrics is None:
            return
        self._seen_steps, self._window_closed = trainer.global_step, True
        if self._is_due():
            self._write(trainer, metrics)
            self._warn_once(_finding_of(pl_module))

    def _is_due(self) -> bool:
        """At Lightning's own interval, or at the first step after it: manual optimisation has batches without one."""
        last = self._step - 1 if self._last_point is None else self._last_point
        return (self._step + 1) // self.every_n_steps > (last + 1) // self.every_n_steps

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring out faults of a window that was not written."""
        _set_deferral(pl_module, False)
        metrics = _metrics_of(pl_module)
        if self._unread and metrics is not None:
            self._read(metrics)
        if metrics is not None and metrics.update_count and trainer.global_step == self._first_step:
            self._warn_once(NO_STEP_SEEN)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Whatever the module is used for next, nobody reads its faults there."""
        _set_deferral(pl_module, False)

    def _write(self, trainer: Trainer, metrics: RolloutISMetrics) -> None:
        values = self._read(metrics)
        prefix = metrics.prefix if self.prefix is None else self.prefix
        defined = {
            prefix + name.removeprefix(metrics.prefix): value for name, value in values.items() if math.isfinite(value)
        }
        if not defined:
            return
        self._last_point = self._step
        trainer.callback_metrics.update(
            {name: torch.tensor(value, dtype=torch.float64) for name, value in defined.items()}
        )
        for logger in trainer.loggers:
            logger.log_metrics(defined, step=self._step)
        self._flush(trainer)

    def _flush(self, trainer: Trainer) -> None:
        if time.monotonic() - self._flushed >= self.flush_seconds:
            for logger in trainer.loggers:
                logger.save()
            self._flushed = time.monotonic()

    def _read(self, metrics: RolloutISMetrics) -> dict[str, float]:
        """The values to write, once their faults are dealt with; the same on every rank."""
        values, found = _fetch(metrics)
        self._unread = False
        refused = refusal(found, metrics.config)
        if refused is not None:
            raise ValueError(refused)
        malformed = malformation(found)
        if malformed is not None:
            self._warn_once(f"{malformed}. The mismatch statistics of such a step mean nothing and are not written")
            return {}
        if values[f"{metrics.prefix}rollout_is_missing_fraction"] == 1.0:
            self._warn_once(ALL_MISSING)
        return values

    def _warn_once(self, message: str | None) -> None:
        if message is not None and message not in self._warned:
            self._warned.add(message)
            rank_zero_warn(message)


def _require_metrics(pl_module: LightningModule) -> None:
    if not hasattr(pl_module, "rollout_is_metrics"):
        raise MisconfigurationException(
            f"RolloutISCallback found no rollout importance sampling in {type(pl_module).__name__}; derive it from "
            "RolloutISMixin and call self.configure_rollout_is(cfg.algorithm) in its __init__ or configure_model"
        )


def _metrics_of(pl_module: LightningModule) -> RolloutISMetrics | None:
    metrics: RolloutISMetrics | None = getattr(pl_module, "rollout_is_metrics", None)
    return metrics


def _finding_of(pl_module: LightningModule) -> str | None:
    # A module may lend the metrics of one inside it, which keeps the rest.
    look: FirstLook | None = getattr(pl_module, "rollout_is_first_look", None)
    return None if look is None else look.finding()


def _set_deferral(pl_module: Any, defers: bool) -> None:
    """From here on this callback tells all ranks of what one refuses, or no longer."""
    pl_module.rollout_is_defers = defers


def _begins_with_no_gradient(trainer: Trainer, batch_idx: int) -> bool:
    """Where Lightning itself begins a window, even if no step has closed the last one: its gradient is dropped."""
    return trainer.lightning_module.automatic_optimization and batch_idx % trainer.accumulate_grad_batches == 0


def _logged_step(trainer: Trainer) -> int:
    """The x at which Lightning puts what the module logs in the batch that begins.

    Steps before it under automatic optimisation; batches before it under manual, whatever steps in them.
    """
    if trainer.lightning_module.automatic_optimization:
        return trainer.global_step
    return trainer.fit_loop.epoch_loop.batch_progress.total.completed


def _fetch(metrics: RolloutISMetrics) -> tuple[dict[str, float], set[str]]:
    """All values, and what was wrong with the data of any rank: on every rank, one collective and one copy."""
    with warnings.catch_warnings():
        # A rank may have no data in a window; its share is the neutral element.
        warnings.filterwarnings("ignore", message=".*was called before the ``update`` method")
        values = metrics.compute()
    numbers = torch.cat([torch.stack(list(values.values())), metrics.faults]).tolist()
    faults = zip(FaultMaxima._fields, numbers[len(values) :], strict=True)
    return dict(zip(values, numbers, strict=False)), {fault for fault, seen in faults if seen > 0}
