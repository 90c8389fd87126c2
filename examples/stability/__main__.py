"""Does a run without the correction fail where a corrected one holds? Many short runs, and what became of them.

Runs whose results lie in docs/stability are not run again, so that the same command goes on after an interruption, and
with more seeds::

    python -m examples.stability --seeds 5              # all that is missing, one process a core
    python -m examples.stability --engines stale_8 --algorithms monitor token_truncate
    python -m examples.stability --list                 # what is missing
    python -m examples.stability --figure               # figure and tables again, from the CSV files
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .grid import ALGORITHMS, ENGINES, grid
from .pool import train_all
from .results import read

DOCS = Path(__file__).parents[2] / "docs"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    known = read(options.out)
    missing = [run for run in grid(options.engines, options.algorithms, options.seeds) if run not in known]
    if options.list:
        print(*(" ".join(map(str, run)) for run in missing), sep="\n")
        return
    failed = 0 if options.figure else train_all(missing, options.out, options.workers, options.set)
    if options.out == DOCS / "stability":
        publish(options.out)
    if failed:
        sys.exit(f"{failed} runs failed")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.stability", description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--seeds", type=int, default=5)
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
    fill(folder.with_suffix(".md"), results, folder / "gradient.csv")


if __name__ == "__main__":
    main()
