"""The words a user may choose from. Standard library only: Hydra reads this file before torch is wanted."""

from typing import Literal, get_args

Level = Literal["token", "sequence", "geometric"]
"""How token log ratios become a weight: each alone, as their product, or as their geometric mean."""

Mode = Literal["truncate", "mask"]
"""How a weight is bounded: capped at the upper threshold, or set to 0 outside both."""

LEVELS: tuple[str, ...] = get_args(Level)
MODES: tuple[str, ...] = get_args(Mode)
