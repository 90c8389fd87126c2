"""How often a call reads a value on the host, which on a GPU waits for all work before it."""

from collections.abc import Callable

import torch

READ = "aten::item"


def host_syncs(function: Callable[[], object]) -> int:
    """Reads in one call. The profiler sees those of compiled code, too, which a dispatch mode does not."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    return sum(event.name == READ and _asked_for(event) for event in profile.events())


def _asked_for(event: torch.autograd.profiler_util.FunctionEvent) -> bool:
    """From Python, by `item` or a branch; what a CPU kernel reads inside itself is no wait on a GPU."""
    return event.cpu_parent is None or event.cpu_parent.name == "aten::is_nonzero"
