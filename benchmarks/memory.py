"""How much memory a call takes at its peak, and how large a process has become.

The peak is of the bytes that torch's allocator has given out and not taken back, as the profiler records each of them,
compiled code included. The resident size would follow what the C library keeps and splits: the same call can take
twice as much of it after another history. `check()` measures an allocation of known size.
"""

import ctypes
import gc
import itertools
from collections.abc import Callable
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


def peak_extra_bytes(function: Callable[[], object]) -> int:
    """The most that is allocated at one time in a call beyond what was before, what it returns included."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        kept = function()
    del kept
    changes = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate((change.nbytes() for change in changes), initial=0))


def check(size: int = 64 << 20) -> float:
    """Measured over true bytes of two allocations, one freed before the other: 1 where the method is right."""

    def allocate() -> torch.Tensor:
        torch.ones(size, dtype=torch.uint8)
        return torch.ones(size, dtype=torch.uint8)

    return peak_extra_bytes(allocate) / size


def measurable() -> bool:
    return STATUS.exists()


def resident_bytes() -> int:
    """Resident size, once all that is free was given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024
