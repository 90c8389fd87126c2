"""The table of `weights_and_statistics` on a CUDA device; without one, the same lines say that nothing was measured."""

from timing import Row, interleaved, median

# isort: split
from collections.abc import Callable
from typing import NamedTuple

import torch
from apart import apart
from torch.autograd import DeviceType
from workload import FASTER, IMPLEMENTATIONS, LEVELS, SHAPES, Batch, batch, by_level, weighing

ROUNDS = 21
LARGEST = SHAPES[-1]
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize")
BYTES_A_TOKEN = 13  # two log-probs and a bool are read, a weight is written
ABSENT = "no CUDA device here; `make bench` fills this in where there is one"


class Measured(NamedTuple):
    """One level."""

    seconds: dict[tuple[int, int], dict[str, list[float]]]
    kernels: dict[str, int]
    waits: dict[str, int]
    peaks: dict[str, float]
    """Bytes a token at the largest shape."""


def measure() -> tuple[str, float, dict[str, Measured]]:
    """The device's name, bytes a second of a copy on it, and what each level takes."""
    return torch.cuda.get_device_name(), _copy_bandwidth(), {level: _measure(level) for level in LEVELS}


def _measure(level: str) -> Measured:
    functions = {name: weighing(name, level, "cuda") for name in IMPLEMENTATIONS}
    seconds = {shape: _race(functions, batch(*shape, "cuda")) for shape in SHAPES}
    tensors = batch(*LARGEST, "cuda")
    profiles = {name: _profile(function, tensors) for name, function in functions.items()}
    return Measured(
        seconds,
        {name: kernels for name, (kernels, _) in profiles.items()},
        {name: waits for name, (_, waits) in profiles.items()},
        {name: _peak(function, tensors) for name, function in functions.items()},
    )


def _race(functions: dict[str, Callable[..., object]], tensors: Batch) -> dict[str, list[float]]:
    calls = {name: _until_done(lambda function=function: function(*tensors)) for name, function in functions.items()}
    return interleaved(calls, ROUNDS, warmup=3, before=torch.cuda.synchronize)


def _until_done(function: Callable[[], object]) -> Callable[[], None]:
    def call() -> None:
        function()
        torch.cuda.synchronize()

    return call


def _copy_bandwidth(size: int = 1 << 28) -> float:
    source = torch.zeros(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    seconds = interleaved({"copy": _until_done(lambda: target.copy_(source))}, ROUNDS, before=torch.cuda.synchronize)
    return 2 * size / median(seconds["copy"])


def _profile(function: Callable[..., object], tensors: Batch) -> tuple[int, int]:
    """Kernels of one call, and how often the host waits for the device in it."""
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        function(*tensors)
    events = profile.events()
    on_device = [event for event in events if event.device_type == DeviceType.CUDA]
    kernels = [event for event in on_device if not event.name.startswith(("Memcpy", "Memset"))]
    return len(kernels), sum(event.name in WAITS for event in events)


def _peak(function: Callable[..., object], tensors: Batch) -> float:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function(*tensors)
    return (torch.cuda.max_memory_allocated() - before) / tensors[0].numel()


def rows() -> list[Row]:
    if not torch.cuda.is_available():
        return _blank()
    device, bandwidth, found = apart(measure)
    return [
        Row("GPU: copy", f"{bandwidth / 1e9:.0f} GB/s", "-", None, device),
        *(_faster_row(name, number, found) for name in FASTER for number in range(len(SHAPES))),
        *(_bandwidth_row(name, bandwidth, found) for name in FASTER),
        *(_count_row(name, found) for name in IMPLEMENTATIONS),
        *(_wait_row(name, found) for name in IMPLEMENTATIONS),
        *(_peak_row(name, found) for name in IMPLEMENTATIONS),
    ]


def _blank() -> list[Row]:
    lines = ("times faster than the reference", "share of a copy's bandwidth", "kernels", "host syncs", "peak memory")
    return [Row(f"GPU, weights and statistics: {line}", "not measured", "-", None, ABSENT) for line in lines]


def _faster_row(name: str, number: int, found: dict[str, Measured]) -> Row:
    shape, target = SHAPES[number], FASTER[name][number]
    times = [found[level].seconds[shape] for level in LEVELS]
    faster = [median(time["reference"]) / median(time[name]) for time in times]
    what = f"GPU, {name}, {shape}: times faster than the reference"
    note = f"reference {by_level([median(time['reference']) * 1e3 for time in times], '{:.3g}')} ms"
    return Row(what, by_level(faster, "{:.1f}x"), f">= {target}x", min(faster) >= target, note)


def _bandwidth_row(name: str, bandwidth: float, found: dict[str, Measured]) -> Row:
    useful = BYTES_A_TOKEN * LARGEST[0] * LARGEST[1]
    shares = [useful / median(found[level].seconds[LARGEST][name]) / bandwidth for level in LEVELS]
    what = f"GPU, {name}, {LARGEST}: share of a copy's bandwidth"
    return Row(what, by_level(shares, "{:.0%}"), "-", None, f"{BYTES_A_TOKEN} bytes a token")


def _count_row(name: str, found: dict[str, Measured]) -> Row:
    counts = [found[level].kernels[name] for level in LEVELS]
    return Row(f"GPU, {name}: kernels a call", by_level(counts, "{}"), "-", None, "profiler")


def _wait_row(name: str, found: dict[str, Measured]) -> Row:
    counts = [found[level].waits[name] for level in LEVELS]
    ours = name != "reference"
    met = max(counts) == 0 if ours else None
    return Row(f"GPU, {name}: host syncs a call", by_level(counts, "{}"), "0" if ours else "-", met, "profiler")


def _peak_row(name: str, found: dict[str, Measured]) -> Row:
    peaks = [found[level].peaks[name] for level in LEVELS]
    what = f"GPU, {name}, {LARGEST}: peak extra memory, bytes a token"
    return Row(what, by_level(peaks, "{:.1f}"), "-", None, "torch's caching allocator")


def main():
    for row in rows():
        print(*row, sep=" | ")


if __name__ == "__main__":
    main()
