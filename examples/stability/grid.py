"""Which runs there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ENGINES = {
    "fp32": ("experiment=stability", "rollout=fp32"),
    "bf16": ("experiment=stability", "rollout=bf16"),
    "int8": ("experiment=stability", "rollout=int8"),
    "int4": ("experiment=stability", "rollout=int4"),
    "stale_8": ("experiment=stability_stale",),
    "stale_16": ("experiment=stability_stale", "actor_rollout_ref.rollout.engine.every=16"),
}
"""Hydra's overrides of each engine of the grid."""
LLAMA_CPP = ("experiment=stability", "rollout=llama_cpp", "actor_rollout_ref.rollout.engine.weight_type=F32")
FILTERED = {
    "top_p_95": (*LLAMA_CPP, "actor_rollout_ref.rollout.engine.top_p=0.95"),
    "top_k_2": (*LLAMA_CPP, "actor_rollout_ref.rollout.engine.top_k=2"),
}
"""The same of engines that leave tokens out, for which llama.cpp has to be installed."""
OVERRIDES = {**ENGINES, **FILTERED}
"""Of every engine."""
UNCORRECTED = "monitor"
ALGORITHMS = (UNCORRECTED, "token_truncate", "token_mask", "sequence_mask", "geometric_mask")
ON_POLICY = "fp32"
"""The control, which there is nothing to correct in."""


class Run(NamedTuple):
    """One of the grid."""

    engine: str
    """One of ``ENGINES``."""
    algorithm: str
    """One of ``ALGORITHMS``."""
    seed: int
    """Of questions, order and sampling."""


def grid(engines: Sequence[str], algorithms: Sequence[str], seeds: int) -> list[Run]:
    """All runs, one seed after the other, so that a grid that is not finished lacks seeds rather than cells.

    Example:
        >>> [run.engine for run in grid(["fp32", "int8"], ["monitor", "token_mask"], seeds=1)]
        ['fp32', 'int8', 'int8']
    """
    return [
        Run(engine, algorithm, seed)
        for seed in range(1, seeds + 1)
        for engine in engines
        for algorithm in algorithms
        if engine != ON_POLICY or algorithm == UNCORRECTED
    ]
