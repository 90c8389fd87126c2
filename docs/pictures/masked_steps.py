"""How far the first 20 optimizer steps move the weights when nearly every token is masked.

About half a minute on two cores, from the repository's root::

    python docs/pictures/masked_steps.py
"""

import warnings

import lightning
import torch
from hydra import compose, initialize_config_dir
from rich.console import Console
from rich.table import Table

from lightning_rollout_is.hydra_store import conf_directory
from lightning_rollout_is.recipes.grpo import GRPOModule
from lightning_rollout_is.recipes.grpo_config import grpo_from_config

STEPS = 20


class GradientNorms(lightning.Callback):
    """Remembers the norm of each step's gradient."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_before_optimizer_step(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Add one."""
        gradients = [weight.grad for weight in pl_module.parameters() if weight.grad is not None]
        self.norms.append(torch.nn.utils.get_total_norm(gradients).item())


def main() -> None:
    """Train and compare."""
    table = Table("preset", "mean gradient norm", "distance of the weights", "reward of the last batch")
    for preset in ("token_truncate", "geometric_mask"):
        table.add_row(preset, *(f"{number:.3g}" for number in trained(preset)))
    Console().print(table)


def trained(preset: str) -> tuple[float, float, float]:
    """Mean gradient norm, how far the weights have moved, and the last reward, on the engine int4."""
    lightning.seed_everything(1, verbose=False)
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        module = grpo_from_config(compose("train", overrides=["rollout=int4", f"algorithm={preset}"]))
    norms, before = GradientNorms(), weights_of(module)
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=STEPS, logger=False, enable_checkpointing=False, callbacks=[norms]
    )
    trainer.fit(module)
    distance = (weights_of(module) - before).norm().item()
    return sum(norms.norms) / len(norms.norms), distance, trainer.callback_metrics["reward"].item()


def weights_of(module: GRPOModule) -> torch.Tensor:
    """All weights in one vector."""
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])


if __name__ == "__main__":
    # Lightning's data loops call a pytree API that torch has deprecated.
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
    main()
