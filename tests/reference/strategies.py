"""Hypothesis strategies: batches and settings over everything that the specification allows."""

import math
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.reference.batches import LAYOUTS, Batch, Tensors, as_seen, lay_out

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
MASK_DTYPES = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32)

# (old, rollout): not known to one of the two engines, or impossible under the training policy.
UNKNOWN = ((-1.0, math.nan), (-1.0, -math.inf), (-1.0, math.inf), (-1.0, -9999.0), (math.nan, -1.0), (math.inf, -1.0))
IMPOSSIBLE = (-math.inf, -1.0)

# (upper, lower); some intervals do not hold 1, the weight of the zeros that stand outside the mask.
NARROW = ((1.0002, None), (1.001, 0.9995), (1.01, 1.001), (0.999, 0.5))
WIDE = ((1.5, None), (2.0, None), (5.0, 0.8), (10.0, 0.5), (5.0, 1.5), (0.9, 0.1))


class Example(NamedTuple):
    """A batch, the tensors that hold it, and the batch again as those tensors round it."""

    layout: str
    tensors: Tensors
    batch: Batch


@st.composite
def settings(draw: DrawFn) -> dict[str, Any]:
    level = draw(st.sampled_from(["token", "sequence", "geometric"]))
    upper, lower = draw(st.sampled_from(NARROW if level == "geometric" else WIDE))
    return {
        "level": level,
        "mode": draw(st.sampled_from(["truncate", "mask"])),
        "upper": upper,
        "lower": lower,
        "veto": draw(st.sampled_from([None, 1e-4, 0.5, 1.5])),
    }


@st.composite
def tokens(draw: DrawFn, span: tuple[float, float], *, with_missing: bool) -> tuple[float, float, float]:
    inside = float(draw(st.integers(0, 3)) > 0)
    kind = draw(st.integers(0, 19))
    if with_missing and kind == 0:
        return *draw(st.sampled_from(UNKNOWN)), inside
    if with_missing and kind == 1:
        return *IMPOSSIBLE, inside
    rollout = draw(st.floats(-8.0, 0.0))
    return rollout + draw(st.floats(*span)), rollout, inside


@st.composite
def batches(draw: DrawFn, *, with_missing: bool = True) -> Batch:
    """Up to five sequences of up to six tokens; log ratios of one magnitude, from a millionth of a nat to 30."""
    magnitude = draw(st.sampled_from([30.0, 8.0, 1.0, 0.1, 1e-2, 1e-4, 1e-6]))
    # Of either sign, or all of one: every weight of a batch may be on the same side of 1.
    span = draw(st.sampled_from([(-magnitude, magnitude), (0.0, magnitude), (-magnitude, 0.0)]))
    row = st.lists(tokens(span, with_missing=with_missing), max_size=6)
    rows = draw(st.lists(row, min_size=1, max_size=5))
    return Batch(*([[token[field] for token in row] for row in rows] for field in range(3)))


@st.composite
def examples(draw: DrawFn, dtypes: tuple[torch.dtype, ...] = DTYPES, *, with_missing: bool = True) -> Example:
    batch = draw(batches(with_missing=with_missing))
    layout = draw(st.sampled_from(LAYOUTS))
    tensors = lay_out(
        batch,
        layout,
        draw(st.sampled_from(dtypes)),
        draw(st.sampled_from(dtypes)),
        draw(st.sampled_from(MASK_DTYPES)),
        padding=draw(st.sampled_from([0.0, math.nan, -math.inf, 1e30])),
    )
    return Example(layout, tensors, as_seen(batch, tensors, layout))


def partitions(length: int) -> SearchStrategy[list[int]]:
    """Which of three parts each row goes to."""
    return st.lists(st.integers(0, 2), min_size=length, max_size=length)
