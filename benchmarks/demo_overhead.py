"""What the whole plugin adds to a step of the main job, `examples/train.py`: its model, engine, task and batches."""

from timing import Row

# isort: split
import tempfile
from pathlib import Path

import lightning
from apart import apart
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from step_overhead import quieten
from toggling import fit_toggled

from lightning_rollout_is.recipes.grpo_config import grpo_from_config

STEPS, BUDGET = 120, 30.0
REASON = "the step is small, and what the plugin takes is the fixed cost of its calls, which no batch size changes"
CONFIGURATIONS = Path(__file__).resolve().parents[1] / "conf"


def measure() -> list[Row]:
    quieten()
    with tempfile.TemporaryDirectory() as folder:
        cfg = _configuration(folder)
        lightning.seed_everything(cfg.seed, verbose=False)
        module = grpo_from_config(cfg)
        loggers, callbacks = (list(instantiate(group).values()) for group in (cfg.logger, cfg.callbacks))
        toggled = fit_toggled(instantiate(cfg.trainer, logger=loggers, callbacks=callbacks), module, BUDGET)
    return toggled.rows("demo without generation", with_loading="demo with generation", reason=REASON)


def _configuration(folder: str):
    # The progress bar would make the step longer, and so the share smaller.
    overrides = [
        f"trainer.max_steps={STEPS}",
        "trainer.enable_progress_bar=false",
        f"trainer.default_root_dir={folder}",
        f"logger.tensorboard.save_dir={folder}",
    ]
    with initialize_config_dir(str(CONFIGURATIONS), version_base="1.3"):
        return compose("train", overrides)


def rows() -> list[Row]:
    return apart(measure)


def main():
    for row in rows():
        print(*row, sep=" | ")


if __name__ == "__main__":
    main()
