"""The report in a few lines of text."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

from lightning_rollout_is.report.page import MARKS, Judged
from lightning_rollout_is.report.values import Summary, telling_values

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

COLOR = {"healthy": "green", "watch": "yellow", "unhealthy": "bold red"}


def summary(judged: Sequence[Judged], stream: IO[str]) -> str:
    """Verdicts and a table; with colours and frames if rich is installed.

    Args:
        judged: The runs, in the order in which they are shown.
        stream: Where the text will go, which decides on width and colours.
    """
    try:
        from rich.console import Console
    except ImportError:
        return plain_summary(judged)
    # A pipe has no width; 80 columns would break the table of two runs.
    console = Console(file=stream, width=None if stream.isatty() else 160)
    with console.capture() as text:
        for one in judged:
            print_verdict(console, one)
        console.print(_table(judged))
    return text.get()


def plain_summary(judged: Sequence[Judged]) -> str:
    """The same without rich."""
    out = io.StringIO()
    for one in judged:
        out.write(f"{MARKS[one.verdict.grade]} {one.verdict.grade.upper()}  {one.run.name}\n")
        out.writelines(f"    {line}\n" for line in _lines(one))
    rows = [("", *(f"{one.run.name}: first / worst / last" for one in judged))]
    rows += [
        (label, *(_three(values) for values in row))
        for label, row in telling_values([one.run for one in judged]).items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        out.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")
    return out.getvalue()


def print_verdict(console: Console, one: Judged) -> None:
    """Print what to think of a run: what is wrong, since when, and what to do.

    Args:
        console: Of rich.
        one: The run, judged.
    """
    from rich.text import Text

    grade = one.verdict.grade
    console.print(Text(f"{MARKS[grade]} {grade.upper()}", style=COLOR[grade]) + Text(f"  {one.run.name}", style="bold"))
    for line in _lines(one):
        console.print(Text(f"    {line}"), soft_wrap=True)


def _lines(one: Judged) -> Iterator[str]:
    yield one.verdict.headline()
    if one.verdict.problems:
        yield one.verdict.problems[0].numbers
        if one.verdict.problems[0].causes:
            yield f"Likely cause: {one.verdict.problems[0].causes[0]}"
        yield f"What to do: {one.verdict.problems[0].remedy}"
    if len(one.verdict.problems) > 1:
        yield f"and {len(one.verdict.problems) - 1} more, on the page"
    yield from (f"Note: {note}" for note in one.run.notes)


def _table(judged: Sequence[Judged]) -> Table:
    from rich.table import Table
    from rich.text import Text

    # Names come from folders: brackets in them are no markup.
    table = Table("")
    for one in judged:
        table.add_column(Text(f"{one.run.name}: first / worst / last"), justify="right")
    for label, row in telling_values([one.run for one in judged]).items():
        table.add_row(label, *(_colored(values) for values in row))
    return table


def _colored(values: Summary | None) -> Text:
    from rich.text import Text

    if values is None:
        return Text("-")
    cells = [
        Text(cell.text, style=COLOR[cell.grade or "healthy"]) for cell in (values.first, values.worst, values.last)
    ]
    return Text(" / ").join(cells)


def _three(values: Summary | None) -> str:
    return "-" if values is None else " / ".join(cell.text for cell in (values.first, values.worst, values.last))
