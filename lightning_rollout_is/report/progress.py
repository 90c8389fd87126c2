"""A bar on the terminal while long logs are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lightning_rollout_is.event_files import event_files_in

Start = Callable[[Path], Callable[[int], None]]
"""Says which folder is being read, and gives what to call with the number of bytes that were."""


@contextmanager
def reading(folders: Sequence[Path], stream: IO[str]) -> Iterator[Start]:
    """Show how far the reading has come: a bar on a terminal that rich can draw on, and a line a folder elsewhere.

    Args:
        folders: What will be read.
        stream: Where to.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield _lines(stream)
        return
    console = Console(file=stream)
    if not console.is_terminal:
        yield _lines(stream)
        return
    words = TextColumn("reading {task.fields[folder]}", markup=False)
    with Progress(words, BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        total = sum(file.stat().st_size for folder in folders for file in event_files_in(folder))
        task = bar.add_task("", total=total, folder="")

        def start(folder: Path) -> Callable[[int], None]:
            bar.update(task, folder=str(folder))
            return lambda size: bar.advance(task, size)

        yield start


def _lines(stream: IO[str]) -> Start:
    def start(folder: Path) -> Callable[[int], None]:
        stream.write(f"reading {folder}\n")
        return lambda size: None

    return start
