"""How much memory a call takes at its peak, as the operating system counts it: no allocation can hide from that.

Linux keeps the highest resident size of a process and lets it start over. Freed memory that the allocator keeps would
hide a later peak, so it is given back first. `check()` measures an allocation of known size.
"""

import ctypes
import gc
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measurable() -> bool:
    return STATUS.exists() and RESET.exists()


def peak_extra_bytes(function: Callable[[], object], repeats: int = 3) -> float:
    """Median over some calls of the peak resident size above that before the call, what is returned included."""
    return statistics.median(_one(function) for _ in range(repeats))


def resident_bytes() -> int:
    """Resident size, once all that is free was given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _read("VmRSS")


def check(size: int = 64 << 20) -> float:
    """Measured over true bytes of a temporary allocation; 1 where the method is right."""
    return peak_extra_bytes(lambda: torch.ones(size, dtype=torch.uint8)) / size


def _one(function: Callable[[], object]) -> int:
    before = resident_bytes()
    RESET.write_text("5")
    kept = function()
    peak = _read("VmHWM")
    del kept
    return peak - before


def _read(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
