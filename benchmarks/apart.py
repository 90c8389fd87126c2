"""A measurement in a process of its own: with so many threads, an empty compile cache, and nobody else's memory."""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")


def apart(function: Callable[..., T], *arguments: object, threads: int | None = None) -> T:
    """What the function returns in a fresh process.

    Args:
        function: Of the top level of a module.
        arguments: Its arguments.
        threads: How many torch may use; None for as many as it takes by itself.
    """
    with tempfile.TemporaryDirectory() as cache:
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_prepare, initargs=(cache, threads))
        with pool:
            return pool.submit(function, *arguments).result()


def _prepare(cache: str, threads: int | None) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # or a compile that another run has done would be taken for fast
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
