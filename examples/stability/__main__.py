"""Does a run without the correction fail where a corrected one holds? Many short runs, and what became of them.

Runs whose results lie in docs/stability are not run again, so that the same command goes on after an interruption, and
with more seeds::

    python -m examples.stability --seeds 5              # all that is missing, one process a core
    python -m examples.stability --engines stale_8 --algorithms monitor token_truncate
    python -m examples.stability --tried                # the settings of tried.py, beside the grid
    python -m examples.stability --list                 # what is missing
    python -m examples.stability --figure               # figure and tables again, from the CSV files
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .grid import ALGORITHMS, ENGINES, Run, grid
from .pool import train_all
from .results import read
from .tried import TRIED

DOCS = Path(__file__).parents[2] / "docs"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    missing = {folder: work for folder, work in work_of(options).items() if work[0]}
    if options.list:
        for folder, (runs, _) in missing.items():
            print(*(" ".join(map(str, (*folder.relative_to(options.out).parts[1:], *run))) for run in runs), sep="\n")
        return
    failed = 0
    if not options.figure:
        failed = sum(train_all(runs, folder, options.workers, more) for folder, (runs, more) in missing.items())
    if options.out == DOCS / "stability":
        publish(options.out)
    if failed:
        sys.exit(f"{failed} runs failed")


def work_of(options: argparse.Namespace) -> dict[Path, tuple[list[Run], Sequence[str]]]:
    """By the folder of their results, the runs that are not in it, and what to override for them."""
    work = {options.out: (grid(options.engines, options.algorithms, options.seeds), options.set)}
    if options.tried:
        work = {options.out / "tried" / name: (it.runs(), (*it.overrides, *options.set)) for name, it in TRIED.items()}
    return {folder: ([run for run in runs if run not in read(folder)], more) for folder, (runs, more) in work.items()}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.stability", description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tried", action="store_true", help="the settings of tried.py in place of the grid")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes of one thread each")
    parser.add_argument("--out", type=Path, default=DOCS / "stability", help="folder of the CSV files")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="more overrides of Hydra's")
    parser.add_argument("--list", action="store_true", help="only name the runs that are missing")
    parser.add_argument("--figure", action="store_true", help="only draw, and fill the tables in")
    options = parser.parse_args(arguments)
    if options.set and options.out == DOCS / "stability":
        parser.error("--set changes what the runs are: give their results a folder of their own with --out")
    return options


def publish(folder: Path) -> None:
    """The figure and the tables of docs/stability.md, from the CSV files."""
    from .figure import draw
    from .tables import fill

    results = read(folder)
    if not results:
        return
    draw(results, folder.with_suffix(".png"))
    fill(folder.with_suffix(".md"), folder)


if __name__ == "__main__":
    main()
