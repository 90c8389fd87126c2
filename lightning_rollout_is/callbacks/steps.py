"""How Lightning counts: what belongs to one optimizer step, and at which x its values lie."""

from lightning.pytorch import Trainer


def begins_without_gradient(trainer: Trainer, batch_idx: int) -> bool:
    """Where Lightning itself begins a window, even if no step has closed the last one: its gradient is dropped."""
    return trainer.lightning_module.automatic_optimization and batch_idx % trainer.accumulate_grad_batches == 0


def logged_step(trainer: Trainer) -> int:
    """The x at which Lightning puts what the module logs in the batch that begins.

    Steps before it under automatic optimisation; batches before it under manual, whatever steps in them.
    """
    if trainer.lightning_module.automatic_optimization:
        return trainer.global_step
    return trainer.fit_loop.epoch_loop.batch_progress.total.completed
