"""What each level and mode does to the gradient, exactly: every response of a tiny policy is counted, none is sampled.

`python -m examples.estimators` prints the tables; with `docs/estimators.md` behind it, it rewrites those in that file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from .tables import all_tables

BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)  # tensors this small take longer in two
    tables = all_tables()
    if not arguments:
        print(tables)
        return
    page = Path(arguments[0])
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + "\n" + tables + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main(sys.argv[1:])
