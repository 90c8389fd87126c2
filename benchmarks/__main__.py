"""Run every benchmark, each in a process of its own, and show and keep what they found: `python benchmarks`."""

from timing import Row

# isort: split
import sys
import time
from importlib.util import find_spec

import results
from rich.console import Console

MODULES = (
    "weights_and_statistics",
    "details",
    "scaling",
    "step_overhead",
    "demo_overhead",
    "logging_cost",
    "token_log_probs",
    "collectives",
    "gpu",
)


def main() -> int:
    console, start = Console(), time.perf_counter()
    found: dict[str, list[Row]] = {}
    for module in filter(find_spec, MODULES):
        console.print(f"{time.perf_counter() - start:4.0f} s  {module}", highlight=False)
        found[module] = results.rows_or_failure(module)
    results.show(found)
    results.write(found, time.perf_counter() - start)
    return any(row.figure == results.FAILED for rows in found.values() for row in rows)


if __name__ == "__main__":
    sys.exit(main())
