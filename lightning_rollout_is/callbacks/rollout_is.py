"""One point per optimizer step and curve, to every logger of the Trainer."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics

MALFORMED = (
    "the mismatch statistics are NaN: response_mask holds values other than 0 and 1, or cu_seqlens does not fit its "
    "tokens; until that is mended nothing is logged, and weights that are applied are NaN"
)
ALL_MISSING = (
    "no token has a usable rollout log-prob: every importance weight is 0 and nothing can be measured; have the engine "
    "return the log-prob of each sampled token (actor_rollout_ref.rollout.calculate_log_probs: true)"
)


class RolloutISCallback(Callback):
    """Writes the mismatch statistics of a module with :class:`RolloutISMixin`.

    A point covers one optimizer step: all its micro-batches, on all ranks. It lies at the step at which Lightning puts
    the module's own logged values, whatever ``log_every_n_steps`` is, and reaches every logger of the Trainer and
    ``trainer.callback_metrics``, so that ``ModelCheckpoint`` and ``EarlyStopping`` can monitor it. A value that is not
    defined is not written. Nothing is logged while the module's threshold is null.

    Keys, behind the prefix: ``rollout_is_mean``, ``_std``, ``_min``, ``_max``, ``_eff_sample_size``,
    ``_veto_fraction``, ``_catastrophic_token_fraction``, ``_ratio_fraction_high``, ``_ratio_fraction_low``,
    ``_missing_fraction``; ``rollout_is_seq_mean``, ``_std``, ``_min``, ``_max``, ``_max_deviation``,
    ``_fraction_high``, ``_fraction_low``; in mode ``"mask"`` also ``rollout_is_masked_fraction`` and
    ``rollout_is_seq_masked_fraction``; ``mismatch_training_ppl``, ``_rollout_ppl``, ``_training_log_ppl``,
    ``_rollout_log_ppl``, ``_log_ppl_diff``, ``_log_ppl_abs_diff``, ``_log_ppl_diff_max``, ``_log_ppl_diff_min``,
    ``_ppl_ratio``, ``_kl``, ``_k3_kl``.

    Args:
        every_n_steps: Write at every n-th optimizer step. Steps between are neither computed nor synchronised.
        prefix: Put before each key instead of the metric's own ``"mismatch/"``.

    Raises:
        ValueError: ``every_n_steps`` is under 1.
        MisconfigurationException: At the start of ``fit``, the module has no rollout importance sampling.
    """

    def __init__(self, every_n_steps: int = 1, prefix: str | None = None) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps = {every_n_steps} is not allowed; allowed: 1 or more")
        self.every_n_steps = every_n_steps
        self.prefix = prefix
        self._seen_steps = 0
        self._window_closed = False
        self._warned: set[str] = set()

    @property
    def state_key(self) -> str:
        """Tells two of these callbacks in one Trainer apart."""
        return self._generate_state_key(every_n_steps=self.every_n_steps, prefix=self.prefix)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a module that has nothing to log before any time is spent."""
        if stage == "fit" and not hasattr(pl_module, "rollout_is_metrics"):
            raise MisconfigurationException(
                f"RolloutISCallback found no rollout importance sampling in {type(pl_module).__name__}; derive it from "
                "RolloutISMixin and call self.configure_rollout_is(cfg.algorithm) in its __init__"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a window with nothing in it."""
        self._seen_steps = trainer.global_step
        self._window_closed = True

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Begin a new window after an optimizer step.

        Only now, not when the last one was written: until here its values can still be read from the metric.
        """
        metrics = _metrics_of(pl_module)
        if self._window_closed and metrics is not None:
            metrics.reset()
        self._window_closed = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Close the window if an optimizer has stepped."""
        metrics = _metrics_of(pl_module)
        if trainer.global_step == self._seen_steps or metrics is None:
            return
        self._seen_steps, self._window_closed = trainer.global_step, True
        step = _logged_step(trainer)
        # The same steps at which Lightning logs under `log_every_n_steps`.
        if (step + 1) % self.every_n_steps == 0:
            self._write(trainer, metrics, step)

    def _write(self, trainer: Trainer, metrics: RolloutISMetrics, step: int) -> None:
        values = _read(metrics)
        self._warn_of_faults(values, metrics.prefix)
        prefix = metrics.prefix if self.prefix is None else self.prefix
        defined = {
            prefix + name.removeprefix(metrics.prefix): value for name, value in values.items() if math.isfinite(value)
        }
        if not defined:
            return
        trainer.callback_metrics.update(
            {name: torch.tensor(value, dtype=torch.float64) for name, value in defined.items()}
        )
        for logger in trainer.loggers:
            logger.log_metrics(defined, step=step)

    def _warn_of_faults(self, values: dict[str, float], prefix: str) -> None:
        missing, kl = values[prefix + "rollout_is_missing_fraction"], values[prefix + "mismatch_kl"]
        if missing == 1.0:
            self._warn_once(ALL_MISSING)
        elif math.isnan(kl) and not math.isnan(missing):
            self._warn_once(MALFORMED)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            rank_zero_warn(message)


def _metrics_of(pl_module: LightningModule) -> RolloutISMetrics | None:
    metrics: RolloutISMetrics | None = getattr(pl_module, "rollout_is_metrics", None)
    return metrics


def _logged_step(trainer: Trainer) -> int:
    """The x at which Lightning puts what the module logs in this batch: batches that stepped before it."""
    if trainer.lightning_module.automatic_optimization:
        return trainer.global_step - 1
    return trainer.fit_loop.total_batch_idx


def _read(metrics: RolloutISMetrics) -> dict[str, float]:
    """All values on the host: on every rank, one collective and one copy."""
    with warnings.catch_warnings():
        # A rank may have no data in a window; its share is the neutral element.
        warnings.filterwarnings("ignore", message=".*was called before the ``update`` method")
        values = metrics.compute()
    return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))
