"""Random batches whose log-probs are bytes that pick from tables of usual and of evil values, and random settings.

Every table value is a multiple of 2^-10 and below 2^41, so that float64 adds log ratios exactly in any order: rounding
alone never decides on which side of a threshold a sequence falls, and a partition must agree with the whole.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

GRID = 2.0**-10
HUGE = 2.0**40
MISSING = (math.nan, math.inf, -math.inf, -9999.0, -HUGE)

OLD = (math.nan, math.inf, -math.inf, 0.0, -0.0, -9999.0, -9998.0, HUGE, -HUGE, -GRID, GRID, -700.0, -89.0)
RATIO = (
    0.0,
    GRID,
    -GRID,
    20.0,
    -20.0,
    20.0 + GRID,
    -20.0 - GRID,
    710.0,
    -745.0,
    88.75,
    -104.0,
    HUGE,
    -HUGE,
    9.0,
    -9.25,
)
# Log ratios of one magnitude each, as they come from engines that agree well, and from ones that do not.
SCALES = (GRID, 8 * GRID, 64 * GRID, 1.0, 8.0)

OLD_TABLE = torch.tensor([*OLD, *(-step * 40 * GRID for step in range(256 - len(OLD)))], dtype=torch.float64)
RATIO_TABLE = torch.tensor([*RATIO, *((step - 120) / 8 for step in range(256 - len(RATIO)))], dtype=torch.float64)
ORDINARY_TABLE = torch.tensor([(step - 128) / 128 for step in range(256)], dtype=torch.float64)

UPPERS = (2.0, 1.5, 5.0, 1.0002, 10.0, 1.0, 0.75, 1e4, 1e8, 1e-3)
LOWERS = (None, 0.5, 1.0, 0.9995, 1e-6, 1e-12)
VETOES = (1e-4, None, 0.5, 1.0, 2.0, 1e-9)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
MASK_DTYPES = (torch.bool, torch.int64, torch.uint8, torch.float32)


CASES_PER_GROUP = 16


class Group(NamedTuple):
    """Many cases at once: batches of one shape and one dtype under one setting."""

    old: Tensor
    """(cases, rows, length)"""
    rollout: Tensor
    mask: Tensor
    settings: dict[str, Any]
    part: list[int]
    """Which of two micro-batches each row goes to."""

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.old, self.rollout, self.mask

    def each(self) -> list["Group"]:
        """Every case as a group of its own."""
        return [
            self._replace(old=old[None], rollout=rollout[None], mask=mask[None])
            for old, rollout, mask in zip(*self.tensors, strict=True)
        ]

    @property
    def bounds(self) -> tuple[float, float]:
        upper = self.settings["upper"]
        return self.settings["lower"] or 1.0 / upper, upper


def settings_of(draw: DrawFn) -> dict[str, Any]:
    upper, lower = draw(st.sampled_from(UPPERS)), draw(st.sampled_from(LOWERS))
    if (1.0 / upper if lower is None else lower) > upper:
        lower = upper / 2
    return {
        "level": draw(st.sampled_from(["token", "sequence", "geometric"])),
        "mode": draw(st.sampled_from(["truncate", "mask"])),
        "upper": upper,
        "lower": lower,
        "veto": draw(st.sampled_from(VETOES)),
    }


@st.composite
def groups(draw: DrawFn) -> Group:
    rows, length = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    shape = (3, CASES_PER_GROUP, rows, length)
    seed = draw(st.binary(min_size=8, max_size=8))
    letters = np.random.default_rng(list(seed)).integers(0, 256, shape)
    old_index, ratio_index, switch = torch.from_numpy(letters)
    old, ratio = OLD_TABLE[old_index], RATIO_TABLE[ratio_index]
    scale = draw(st.sampled_from([None, *SCALES]))
    if scale is not None:
        old = torch.where(old.abs() < HUGE, old, -1.0)
        ratio = (ORDINARY_TABLE[ratio_index] * scale / GRID).round() * GRID
    rollout = old - ratio
    # Some values of the third byte say that the engine had no log-prob; all say whether the token is a response's.
    for value, missing in enumerate(MISSING):
        rollout = torch.where((switch - 11) // 3 == value, missing, rollout)
    dtype = draw(st.sampled_from(DTYPES))
    return Group(
        old.to(dtype),
        rollout.to(draw(st.sampled_from([dtype, torch.float32]))),
        (switch % draw(st.sampled_from([4, 2, 256])) != 0).to(draw(st.sampled_from(MASK_DTYPES))),
        settings_of(draw),
        draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)),
    )
