"""What a terminal shows while long logs are read, judged and drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lightning_rollout_is.event_files import event_files_in

if TYPE_CHECKING:
    from rich.console import Console

Start = Callable[[Path], Callable[[int], None]]
"""Says which folder is being read, and gives what to call with the number of bytes that were."""


@contextmanager
def reading(folders: Sequence[Path], stream: IO[str]) -> Iterator[Start]:
    """Show how far the reading has come: a bar on a terminal that rich can draw on, and a line a folder elsewhere.

    Args:
        folders: What will be read.
        stream: Where to.
    """
    console = _terminal(stream)
    if console is None:
        yield _lines(stream)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    words = TextColumn("reading {task.fields[folder]}", markup=False)
    with Progress(words, BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        total = sum(file.stat().st_size for folder in folders for file in event_files_in(folder))
        task = bar.add_task("", total=total, folder="")

        def start(folder: Path) -> Callable[[int], None]:
            bar.update(task, folder=str(folder))
            return lambda size: bar.advance(task, size)

        yield start


@contextmanager
def working(words: str, stream: IO[str]) -> Iterator[None]:
    """Show what takes a while: on a terminal that rich can draw on, and nothing elsewhere.

    Args:
        words: What is being done.
        stream: Where to.
    """
    console = _terminal(stream)
    if console is None:
        yield
    else:
        with console.status(words):
            yield


def _terminal(stream: IO[str]) -> Console | None:
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=stream)
    return console if console.is_terminal else None


def _lines(stream: IO[str]) -> Start:
    def start(folder: Path) -> Callable[[int], None]:
        stream.write(f"reading {folder}\n")
        return lambda size: None

    return start
