"""One run."""

from __future__ import annotations

import logging
import warnings

import lightning
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from lightning_rollout_is.engines import CTranslate2Engine
from lightning_rollout_is.hydra_store import conf_directory
from lightning_rollout_is.recipes.grpo import GRPOModule
from lightning_rollout_is.recipes.grpo_config import grpo_from_config
from lightning_rollout_is.recipes.sampling import GroupSampler

from .grid import OVERRIDES, Run
from .results import EVALUATED, MISMATCH, Row

HELD_OUT = {"questions": 256, "seed": 0}
EVERY = 8
"""Steps from one evaluation to the next."""
QUIET = ("logger=none", "trainer.enable_progress_bar=false", "trainer.default_root_dir=runs/stability")


def train(run: Run, *overrides: str) -> list[Row]:
    """Train once.

    Args:
        run: Engine, algorithm and seed.
        overrides: More of Hydra's, for a run that is shorter or otherwise different.
    """
    return fitted(run, *overrides)[1].rows


def fitted(run: Run, *overrides: str) -> tuple[GRPOModule, Recorder]:
    """The trained module, and what was noted of its training."""
    torch.set_num_threads(1)
    _quieten()
    chosen = [*OVERRIDES[run.engine], f"algorithm={run.algorithm}", f"seed={run.seed}", *QUIET, *overrides]
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        cfg = compose("train", chosen)
    lightning.seed_everything(cfg.seed, verbose=False)
    module, recorder = grpo_from_config(cfg), Recorder()
    callbacks = [*instantiate(cfg.callbacks).values(), recorder]
    instantiate(cfg.trainer, logger=False, callbacks=callbacks).fit(module)
    return module, recorder


class Recorder(lightning.Callback):
    """Notes what each step logged, and at every eighth one the reward of the policy itself.

    The engine's reward is not the policy's: a stale engine earns what an older policy would, a coarse one less. So
    questions that are the same in all runs are answered with the present weights in float32.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._gradient_norm = 0.0

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        self._held_out = GroupSampler(
            CTranslate2Engine("float32", seed=HELD_OUT["seed"]),
            module.sampler.task,
            n=1,
            train_batch_size=HELD_OUT["questions"],
            max_response_length=module.sampler.max_response_length,
        )
        self.rows.append({"step": 0, EVALUATED: self._evaluate(module)})

    def on_before_optimizer_step(self, trainer, module, optimizer) -> None:
        norms = [weight.grad.norm() for weight in module.parameters() if weight.grad is not None]
        self._gradient_norm = torch.stack(norms).norm().item()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        logged = {name.split("/")[-1]: value.item() for name, value in trainer.callback_metrics.items()}
        row = {"step": trainer.global_step, "gradient_norm": self._gradient_norm}
        row |= {column: logged[name] for column, name in MISMATCH.items() if name in logged}
        if trainer.global_step % EVERY == 0:
            row[EVALUATED] = self._evaluate(module)
        self.rows.append(row)

    def _evaluate(self, module: lightning.LightningModule) -> float:
        self._held_out.engine.sync_weights(module.policy)
        return self._held_out.sample(torch.Generator().manual_seed(HELD_OUT["seed"])).mean_reward


def _quieten() -> None:
    # Lightning's data loops call a pytree API that torch has deprecated.
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
    # Notes on the hardware, and advertisements.
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
