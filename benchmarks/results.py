"""All figures in one table on the screen, and in `RESULTS.md` beside this file."""

from timing import Row

# isort: split
import importlib
import os
import platform
import traceback
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import torch
from apart import apart
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("RESULTS.md")
FAILED = "failed"
COLUMNS = ("what", "figure", "target", "", "note")
VERDICTS = {True: "met", False: "short", None: ""}
COLOURS = {True: "green", False: "red", None: ""}


def rows_of(module: str) -> list[Row]:
    return importlib.import_module(module).rows()


def rows_or_failure(module: str) -> list[Row]:
    """What a module finds, or one row that says why it finds nothing."""
    try:
        return apart(rows_of, module)
    except Exception as error:  # the others still have something to say
        traceback.print_exc()
        return [Row(module, FAILED, "-", False, f"{type(error).__name__}: {error}".splitlines()[0])]


def show(found: Mapping[str, list[Row]]) -> None:
    """Print the rows of each module, with the notes of those that fall short."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    table = Table(*COLUMNS, title=machine())
    for module, rows in found.items():
        table.add_section()
        table.add_row(f"[bold]{module}")
        for row in rows:
            note = row.note if row.met is False else ""
            table.add_row(row.what, row.figure, row.target, VERDICTS[row.met], note, style=COLOURS[row.met])
    console.print(table)


def write(found: Mapping[str, list[Row]], seconds: float) -> None:
    """Write the rows of each module to `RESULTS.md`."""
    lines = [
        "# What it costs",
        "",
        "Written by `make bench`; medians of runs that take turns. Where three figures share a cell, they are the "
        "token, the sequence and the geometric level.",
        "",
        f"- command: `make bench`, {seconds / 60:.0f} minutes",
        f"- machine: {machine()}",
        f"- date: {datetime.now(timezone.utc):%Y-%m-%d}",
    ]
    for module, rows in found.items():
        lines += ["", f"## {module}", "", "| what | figure | target | | note |", "|---|---|---|---|---|"]
        lines += [_line(row) for row in rows]
    RESULTS.write_text("\n".join(lines) + "\n")


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{_processor()}, {cores} cores, {gpu}; {platform.system()}, {versions}"


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _line(row: Row) -> str:
    cells = (row.what, row.figure, row.target, VERDICTS[row.met], row.note)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
