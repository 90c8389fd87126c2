"""The main job: GRPO on a small language model whose rollout engine disagrees with its trainer.

About a minute on two cores::

    python examples/train.py
    python examples/train.py algorithm=geometric_mask rollout=int4 trainer.max_steps=50
    python examples/train.py experiment=dapo task.longest=12
"""

import logging
import sys
import warnings

import hydra
import lightning
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.callbacks.progress.rich_progress import RichProgressBarTheme
from lightning.pytorch.loggers import TensorBoardLogger
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from lightning_rollout_is import plot_rollout_is
from lightning_rollout_is.event_files import read_events
from lightning_rollout_is.recipes.grpo_config import grpo_from_config
from lightning_rollout_is.recipes.report import summary_table, tell_verdict


@hydra.main(config_path="../conf", config_name="train", version_base="1.3")
def main(cfg: DictConfig) -> None:
    """Check the configuration, train, report."""
    quieten_lightning()
    lightning.seed_everything(cfg.seed, verbose=False)
    try:
        module = grpo_from_config(cfg)
    except (ValueError, InstantiationException) as error:
        sys.exit(f"configuration error: {error.__cause__ or error}")
    loggers, callbacks = (list(instantiate(group).values()) for group in (cfg.logger, cfg.callbacks))
    for logger in loggers:
        logger.log_hyperparams(OmegaConf.to_container(cfg, resolve=True))
    if cfg.trainer.enable_progress_bar:
        # Its three decimals would show no mismatch.
        callbacks.append(RichProgressBar(theme=RichProgressBarTheme(metrics_format=".3g")))
    trainer: lightning.Trainer = instantiate(cfg.trainer, logger=loggers, callbacks=callbacks)
    trainer.fit(module)
    if trainer.is_global_zero:
        report(trainer, name=f"rollout={cfg.actor_rollout_ref.rollout.name}")


def quieten_lightning() -> None:
    """Leave the progress bar and the table alone on the screen."""
    # Lightning's data loops call a pytree API that torch has deprecated.
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
    # Notes on the hardware, and advertisements.
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)


def report(trainer: lightning.Trainer, name: str) -> None:
    """Print first and last values and the verdict and draw the curves, from what the run wrote."""
    folders = [logger.log_dir for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
    if not folders:
        return
    console, history = Console(soft_wrap=True), read_events(folders[0])
    console.print(summary_table(history))
    if "mismatch/rollout_is_mean" in history:
        picture = f"{trainer.default_root_dir}/rollout_is.png"
        plot_rollout_is(history, picture)
        tell_verdict(folders[0], name, console)
        console.print(f"curves: {picture}")
        console.print(f"the same as a page: lightning-rollout-is report {folders[0]}")
    console.print(f"all values: tensorboard --logdir {folders[0]}")


if __name__ == "__main__":
    main()
