"""The command line: ``lightning-rollout-is report LOGDIR [LOGDIR ...]``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lightning_rollout_is.report.page import Judged, gravest_first, page
from lightning_rollout_is.report.progress import reading, working
from lightning_rollout_is.report.runs import Run, UnreadableError, folders_of_runs, names_of, read_run
from lightning_rollout_is.report.terminal import summary
from lightning_rollout_is.report.verdict import judge

UNHEALTHY, UNREAD = 1, 2
EPILOG = """\
exit status:
  0  every run is healthy, or to be watched
  1  at least one run is unhealthy
  2  something that was asked for could not be read or written (the rest is reported all the same), or wrong usage

A folder stands for every run at or below it. The configuration is read from hparams.yaml, .hydra/config.yaml or the
event file, where there is one. Settings that look like passwords or keys are left out of the page."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Without the name of the program; ``None`` for the process's own.

    Returns:
        The exit status: 0 if no run is unhealthy, 1 if one is, 2 if something could not be read or written.
    """
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may know fewer signs than a page
    runs, unread = _read(options.logdir, options.prefix)
    for message in unread:
        sys.stderr.write(f"not read: {message}\n")
    if not runs:
        return UNREAD
    with working("judging", sys.stderr):
        judged = gravest_first([Judged(run, judge(run)) for run in runs])
    _tell(summary(judged, sys.stdout))
    with working("drawing", sys.stderr):
        content = page(judged, unread, _version())
    written = _write(options.out, content)
    if unread or not written:
        return UNREAD
    return UNHEALTHY if any(one.verdict.grade == "unhealthy" for one in judged) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("lightning-rollout-is", description="Rollout importance sampling: see a run.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    report = commands.add_parser(
        "report",
        help="one HTML page on one or several runs: what is wrong, since when, what to set",
        description="Read TensorBoard event files, judge each run, and write one HTML page that needs nothing else.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument("logdir", nargs="+", type=Path, metavar="LOGDIR", help="folder with runs in it or below it")
    report.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="the page; report.html unless given"
    )
    report.add_argument(
        "--prefix", default=None, help="what the names of the statistics begin with; found out unless given"
    )
    return parser


def _read(log_dirs: Sequence[Path], prefix: str | None) -> tuple[list[Run], list[str]]:
    """The runs, and messages on what could not be read."""
    runs: list[Run] = []
    unread: list[str] = []
    folders: dict[Path, Path] = {}
    for log_dir in log_dirs:
        folders.update({folder.resolve(): folder for folder in _found(log_dir, unread)})
    found = list(folders.values())
    with reading(found, sys.stderr) as start:
        for folder, name in zip(found, names_of(found), strict=True):
            advance = start(folder)
            try:
                runs.append(read_run(folder, name, prefix, advance))
            except (UnreadableError, OSError) as error:
                unread.append(str(error))
    return runs, unread


def _found(log_dir: Path, unread: list[str]) -> list[Path]:
    try:
        return folders_of_runs(log_dir)
    except UnreadableError as error:
        unread.append(str(error))
        return []


def _write(out: Path, content: str) -> bool:
    """Whether the page could be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(content, encoding="utf-8", errors="replace")  # names of folders can be any bytes
    except OSError as error:
        sys.stderr.write(f"cannot write the page: {error}; choose another place with --out\n")
        return False
    _tell(f"page: {out}\n")
    return True


def _tell(text: str) -> None:
    """Print, also where nobody reads on, as with ``| head``: the page is written all the same."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still in the buffer has to go somewhere when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version() -> str:
    try:
        return version("lightning-rollout-is")
    except PackageNotFoundError:
        return ""
