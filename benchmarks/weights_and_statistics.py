"""Weights and all statistics of a batch: the published implementation, ours eager, ours compiled, and the limit.

The limit is the time in which this machine reads both log-probs and the mask and writes the weights, 13 bytes a token,
at the bandwidth of `torch.add(old, rollout, out=...)`, which moves 12. A sweep over 64 MiB before every call puts the
batch out of the caches, as a training step does, and a call on a tiny batch brings the code back; what it costs to
start from cold code is part of `step_overhead`.
"""

from timing import Row, interleaved, median

# isort: split
import time
from typing import NamedTuple

import memory
import torch
from apart import apart
from host_syncs import host_syncs
from reference import version
from torch._dynamo.utils import counters
from workload import FASTER, IMPLEMENTATIONS, LEVELS, SHAPES, Batch, batch, by_level, weighing

THREADS = (1, 2)
OTHER_SHAPES = ((256, 512), (64, 1024), (33, 77))
LARGEST = SHAPES[-1]
LIMIT_MULTIPLE = {"eager": None, "compiled": 3.0}
PEAK_BYTES = {"reference": None, "eager": 6.0, "compiled": 4.5}
TINY = (2, 16)
ROUNDS = {TINY: 31, SHAPES[0]: 21, SHAPES[1]: 15, SHAPES[2]: 9}
AIMED_AT = "the targets come from a machine where the reference took 338 to 423 ms at (512, 4096)"
REASONS: dict[object, str] = {
    SHAPES[0]: "33 thousand tokens are little next to the fixed cost of a call, which is the time at (2, 16)",
    SHAPES[1]: AIMED_AT,
    SHAPES[2]: AIMED_AT,
    "eager threads": "threads that sleep while they wait wake late for each of forty operations a block",
    "limit": "the arithmetic of a token takes longer than to move its 13 bytes",
}
"""Why figures fall short, where they do: by shape those against the reference, under `limit` those against it."""


class Measured(NamedTuple):
    """What a process with one number of threads found, by level first."""

    seconds: dict[str, dict[tuple[int, int], dict[str, list[float]]]]
    """Of the three implementations and of `add`, by shape."""
    compile_seconds: dict[str, float]
    recompiles: dict[str, int]
    syncs: dict[str, dict[str, int]]
    peaks: dict[str, dict[str, float]]
    """Bytes a token at the largest shape."""
    check: float
    """Of the memory measurement: 1 where it is right."""


def measure(with_memory: bool) -> Measured:
    """In the process that it is called in."""
    found = Measured({}, {}, {}, {}, {}, memory.check() if with_memory else float("nan"))
    for level in LEVELS:
        functions = {name: weighing(name, level) for name in IMPLEMENTATIONS}
        found.compile_seconds[level] = _seconds_of(functions["compiled"], batch(*SHAPES[0]))
        _require_compiled()
        found.syncs[level] = _syncs(functions, batch(*SHAPES[0]))
        graphs = _graphs()
        found.seconds[level] = {shape: _race(functions, batch(*shape), ROUNDS[shape]) for shape in ROUNDS}
        for shape in OTHER_SHAPES:
            functions["compiled"](*batch(*shape))
        found.recompiles[level] = _graphs() - graphs
        if with_memory:
            found.peaks[level] = _peaks(functions, batch(*LARGEST))
    return found


def _graphs() -> int:
    return counters["stats"]["unique_graphs"]


def _require_compiled() -> None:
    """Where the compiler fails, ours goes on without it, and would be measured under its name."""
    if not _graphs():
        raise RuntimeError("torch.compile made nothing; is there a C++ compiler?")


def _race(functions: dict, tensors: Batch, rounds: int) -> dict[str, list[float]]:
    out, sweep, tiny = torch.empty_like(tensors[0]), torch.zeros(64 << 20, dtype=torch.uint8), batch(*TINY)
    calls = {name: lambda function=function: function(*tensors) for name, function in functions.items()}
    calls["add"] = lambda: torch.add(tensors[0], tensors[1], out=out)

    def empty_caches_of_data() -> None:
        sweep.add_(1)
        for function in functions.values():
            function(*tiny)

    return interleaved(calls, rounds, before=empty_caches_of_data)


def _seconds_of(function, tensors: Batch) -> float:
    start = time.perf_counter()
    function(*tensors)
    return time.perf_counter() - start


def _syncs(functions: dict, tensors: Batch) -> dict[str, int]:
    return {name: host_syncs(lambda f=f: f(*tensors)) for name, f in functions.items()}


def _peaks(functions: dict, tensors: Batch) -> dict[str, float]:
    tokens = tensors[0].numel()
    return {name: memory.peak_extra_bytes(lambda f=f: f(*tensors)) / tokens for name, f in functions.items()}


def rows() -> list[Row]:
    found = {threads: apart(measure, threads == 1, threads=threads) for threads in THREADS}
    return [
        *(row for threads in THREADS for row in _speed_rows(threads, found[threads])),
        *_memory_rows(found[1]),
        *_sync_rows(found[1]),
        *_compile_rows(found[1]),
    ]


def _speed_rows(threads: int, found: Measured) -> list[Row]:
    suffix = f"{threads} thread{'s' * (threads > 1)}"
    return [
        *(_faster_row(name, number, suffix, found) for name in FASTER for number in range(len(SHAPES))),
        *(_fixed_row(name, suffix, found) for name in IMPLEMENTATIONS),
        *(_limit_row(name, suffix, found) for name in IMPLEMENTATIONS),
        *(_token_row(name, suffix, found) for name in (*IMPLEMENTATIONS, "add")),
    ]


def _faster_row(name: str, number: int, suffix: str, found: Measured) -> Row:
    shape, target = SHAPES[number], FASTER[name][number]
    times = [found.seconds[level][shape] for level in LEVELS]
    faster = [median(time["reference"]) / median(time[name]) for time in times]
    return Row(
        f"weights and statistics, {name}, {shape}, {suffix}: times faster than verl {version()}",
        by_level(faster, "{:.1f}x"),
        f">= {target}x",
        min(faster) >= target,
        _note(
            min(faster) >= target,
            "eager threads" if name == "eager" and suffix != "1 thread" else shape,
            f"reference {_milliseconds(times, 'reference')} ms",
        ),
    )


def _note(met: bool | None, key: object, text: str) -> str:
    return text if met is not False or key not in REASONS else f"{REASONS[key]}; {text}"


def _milliseconds(times: list[dict[str, list[float]]], name: str) -> str:
    return by_level([median(time[name]) * 1e3 for time in times], "{:.3g}")


def _fixed_row(name: str, suffix: str, found: Measured) -> Row:
    figure = _milliseconds([found.seconds[level][TINY] for level in LEVELS], name)
    return Row(f"weights and statistics, {name}, {TINY}, {suffix}: ms a call", figure, "-", None, "the fixed cost")


def _limit_row(name: str, suffix: str, found: Measured) -> Row:
    times = [found.seconds[level][LARGEST] for level in LEVELS]
    multiples = [median(time[name]) / (median(time["add"]) * 13 / 12) for time in times]
    target = LIMIT_MULTIPLE.get(name)
    met = None if target is None else max(multiples) <= target
    return Row(
        f"weights and statistics, {name}, {LARGEST}, {suffix}: times the limit",
        by_level(multiples, "{:.1f}x"),
        "-" if target is None else f"<= {target:g}x",
        met,
        _note(
            met,
            "limit",
            f"limit {by_level([_nanoseconds(time, 'add') * 13 / 12 for time in times], '{:.2f}')} ns a token",
        ),
    )


def _token_row(name: str, suffix: str, found: Measured) -> Row:
    times = [found.seconds[level][LARGEST] for level in LEVELS]
    figure = by_level([_nanoseconds(time, name) for time in times], "{:.2f}")
    what = "torch.add(old, rollout, out=...)" if name == "add" else f"weights and statistics, {name}"
    return Row(f"{what}, {LARGEST}, {suffix}: ns a token", figure, "-", None, "")


def _nanoseconds(times: dict[str, list[float]], name: str) -> float:
    return median(times[name]) / (LARGEST[0] * LARGEST[1]) * 1e9


def _memory_rows(found: Measured) -> list[Row]:
    return [_memory_row(name, target, found) for name, target in PEAK_BYTES.items()]


def _memory_row(name: str, target: float | None, found: Measured) -> Row:
    what = f"weights and statistics, {name}, {LARGEST}: peak extra memory, bytes a token"
    goal = "-" if target is None else f"<= {target:g}"
    peaks = [found.peaks[level][name] for level in LEVELS]
    note = f"bytes allocated at one time, weights included; a known allocation measures {found.check:.3f} of its size"
    return Row(what, by_level(peaks, "{:.1f}"), goal, None if target is None else max(peaks) <= target, note)


def _sync_rows(found: Measured) -> list[Row]:
    return [_sync_row(name, found) for name in IMPLEMENTATIONS]


def _sync_row(name: str, found: Measured) -> Row:
    counts = [found.syncs[level][name] for level in LEVELS]
    ours = name != "reference"
    return Row(
        f"weights and statistics, {name}: host syncs a call",
        by_level(counts, "{}"),
        "0" if ours else "-",
        max(counts) == 0 if ours else None,
        "values read on the host, as the profiler sees them",
    )


def _compile_rows(found: Measured) -> list[Row]:
    seconds = [found.compile_seconds[level] for level in LEVELS]
    counts = [found.recompiles[level] for level in LEVELS]
    shapes = len(ROUNDS) + len(OTHER_SHAPES)
    return [
        Row("first compiled call, empty cache: seconds", by_level(seconds, "{:.1f}"), "-", None, "one thread"),
        Row(f"recompiles over {shapes} shapes", by_level(counts, "{}"), "0", max(counts) == 0, "batch and length vary"),
    ]


def main():
    for row in rows():
        print(*row, sep=" | ")


if __name__ == "__main__":
    main()
