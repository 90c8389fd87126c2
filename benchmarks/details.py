"""What `details=True` and groups add to weights and statistics: a second pass over the tokens, and a longer vector."""

from timing import Row, interleaved, median, ratio

# isort: split
from functools import partial
from typing import NamedTuple

import torch
from apart import apart
from host_syncs import host_syncs
from workload import SHAPES, batch, by_level, config

from lightning_rollout_is import RolloutISMetrics

LEVELS = ("token", "sequence")
GROUPS = ("math", "code", "web", "chat")
WAYS = ("eager", "compiled")
ROUNDS = {SHAPES[0]: 21, SHAPES[2]: 7}


class Measured(NamedTuple):
    """By way, shape and level."""

    seconds: dict[str, dict[tuple[int, int], dict[str, dict[str, list[float]]]]]
    syncs: dict[str, int]


def measure() -> Measured:
    """In the process that it is called in."""
    found = Measured({way: {shape: {} for shape in ROUNDS} for way in WAYS}, {})
    for way in WAYS:
        for shape, rounds in ROUNDS.items():
            for level in LEVELS:
                calls = _calls(way == "compiled", shape, level)
                found.seconds[way][shape][level] = interleaved(calls, rounds)
                found.syncs[way] = max(found.syncs.get(way, 0), *(host_syncs(call) for call in calls.values()))
    return found


def _calls(compiled: bool, shape: tuple[int, int], level: str) -> dict[str, partial]:
    tensors, groups = batch(*shape), torch.arange(shape[0]) % len(GROUPS)
    plain, detailed, grouped = (
        RolloutISMetrics(config(level), compile=compiled, **options)
        for options in ({}, {"details": True}, {"groups": GROUPS})
    )
    return {
        "plain": partial(plain.weigh, *tensors),
        "details": partial(detailed.weigh, *tensors),
        "groups": partial(grouped.weigh, *tensors, groups=groups),
    }


def rows() -> list[Row]:
    found = apart(measure, threads=1)
    return [
        *(
            _added_row(way, shape, found.seconds[way][shape], what)
            for way in WAYS
            for shape in ROUNDS
            for what in ("details", "groups")
        ),
        Row(
            "details and groups: host syncs a call, eager / compiled",
            by_level([found.syncs[way] for way in WAYS], "{}"),
            "0",
            not any(found.syncs.values()),
            "reads on the host that the profiler sees",
        ),
    ]


def _added_row(way: str, shape: tuple[int, int], seconds: dict[str, dict[str, list[float]]], what: str) -> Row:
    times = [ratio(seconds[level][what], seconds[level]["plain"]).middle for level in LEVELS]
    took = [median(seconds[level][what]) * 1e3 for level in LEVELS]
    return Row(
        f"weights and statistics with {what}, {way}, {shape}, 1 thread, {' / '.join(LEVELS)}: times without",
        by_level(times, "{:.2f}x"),
        "-",
        None,
        f"{by_level(took, '{:.3g}')} ms",
    )
