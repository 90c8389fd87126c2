"""Many runs, one process a core, each written down as it ends."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path

from .grid import Run
from .results import Row, add

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}


def train_all(runs: Sequence[Run], folder: Path, workers: int, overrides: Sequence[str] = ()) -> int:
    """Train in parallel, and keep each run that is finished.

    Args:
        runs: Which.
        folder: Of the CSV files.
        workers: Processes of one thread each.
        overrides: More of Hydra's, for all runs.

    Returns:
        How many failed.
    """
    os.environ.update(ONE_THREAD)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, end_with_parent) as pool:
        began = {pool.submit(train_one, run, overrides): run for run in runs}
        try:
            return sum(not kept(folder, began[future], future) for future in as_completed(began))
        except KeyboardInterrupt:
            os._exit(130)  # the pool would train what is left first; what is finished is written


def kept(folder: Path, run: Run, future: Future) -> bool:
    """Write a run down, or say why there is nothing to write."""
    if future.exception() is not None:
        print(*run, "failed:", future.exception(), file=sys.stderr, flush=True)
        return False
    seconds, rows = future.result()
    add(folder, run, rows)
    print(*run, f"{seconds:.0f} s", flush=True)
    return True


def train_one(run: Run, overrides: Sequence[str]) -> tuple[float, list[Row]]:
    """Seconds and rows of one run; what it needs is imported here, since drawing needs none of it."""
    from .training import train

    began = time.perf_counter()
    rows = train(run, *overrides)
    return time.perf_counter() - began, rows


def end_with_parent() -> None:
    """A worker whose parent was killed would otherwise train on for nobody."""
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
