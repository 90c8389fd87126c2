"""What was tried beside the grid: the same experiment under other settings."""

from __future__ import annotations

from typing import NamedTuple

from .grid import UNCORRECTED, Run

ALGORITHM, ACTOR, ROLLOUT = "algorithm", "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
LONG = "trainer.max_steps=256"
BAND = f"{ALGORITHM}.rollout_is_threshold", f"{ALGORITHM}.rollout_is_threshold_lower"


class Setting(NamedTuple):
    """What differs from the grid, and for which of its cells."""

    words: str
    """In the table."""
    engines: tuple[str, ...]
    algorithms: tuple[str, ...] = (UNCORRECTED, "token_truncate")
    overrides: tuple[str, ...] = ()
    """Of Hydra's, beside the engine's."""
    control: bool = True
    """Whether it also has to be trained on policy: a setting under which that fails says nothing of a correction."""
    seeds: int = 2

    def runs(self) -> list[Run]:
        """One seed after the other.

        Example:
            >>> [run.engine for run in Setting("longer", ("int4",), ("token_mask",), seeds=1).runs()]
            ['fp32', 'int4']
        """
        control = [("fp32", UNCORRECTED)] if self.control else []
        cells = [*control, *((engine, name) for engine in self.engines for name in self.algorithms)]
        return [Run(*cell, seed) for seed in range(1, self.seeds + 1) for cell in cells]


TRIED = {
    "learning_rate": Setting("learning rate 5e-4", ("int4",), overrides=(f"{ACTOR}.optim.lr=5e-4",)),
    "longer": Setting("512 steps", ("int4",), overrides=("trainer.max_steps=512",)),
    "epochs": Setting("4 optimizer steps a rollout, of 32", ("int4",), overrides=(f"{ACTOR}.ppo_epochs=4",)),
    "colder": Setting("temperature 0.6", ("int4",), overrides=(f"{ROLLOUT}.temperature=0.6",)),
    "hotter": Setting("temperature 1.4", ("int4",), overrides=(f"{ROLLOUT}.temperature=1.4",)),
    "half_rate": Setting(
        "256 steps of learning rate 1e-4", ("stale_16",), overrides=(LONG, f"{ACTOR}.optim.lr=1e-4"), seeds=3
    ),
    "twice_as_long": Setting("256 steps", ("stale_8",), overrides=(LONG,), seeds=3),
    "large_eps": Setting(
        "AdamW's eps 0.1, learning rate 2.5e-3",
        ("bf16", "int4", "stale_16"),
        (UNCORRECTED, "geometric_mask"),
        overrides=(f"+{ACTOR}.optim.eps=0.1", f"{ACTOR}.optim.lr=2.5e-3"),
        seeds=3,
    ),
    "filters": Setting(
        "llama.cpp in float32, filtered",
        ("top_p_95", "top_k_2"),
        (UNCORRECTED, "token_truncate", "sequence_mask"),
        control=False,
    ),
    "sequence_truncate": Setting(
        "another preset", ("int4", "stale_8", "stale_16"), ("sequence_truncate",), control=False, seeds=5
    ),
    "wide_band": Setting(
        "band 1/2 to 2",
        ("stale_8", "stale_16"),
        ("geometric_mask",),
        overrides=(f"{BAND[0]}=2.0", f"{BAND[1]}=0.5"),
        control=False,
        seeds=5,
    ),
}  # fmt: skip
"""By the name of the folder under docs/stability/tried."""
