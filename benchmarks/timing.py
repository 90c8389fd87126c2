"""Times of functions that take turns, so that whatever else the machine does falls on all of them alike."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin while they wait would be measured as work
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes a line for each of its starts and stops
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # and one for what was allocated before it started

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One line of the table of results."""

    what: str
    """What was measured, with its shape or its setting."""
    figure: str
    """The figure with its unit; `not measured` where the machine lacks what it takes."""
    target: str
    """What was aimed at; `-` where the figure only informs."""
    met: bool | None
    """Whether the target is met; None where there is none or nothing was measured."""
    note: str
    """How it was measured, or why it falls short."""


class Spread(NamedTuple):
    """Median and quartiles."""

    low: float
    middle: float
    high: float


def interleaved(
    functions: dict[str, Callable[[], object]],
    rounds: int,
    warmup: int = 2,
    before: Callable[[], object] | None = None,
) -> dict[str, list[float]]:
    """Seconds of each function in each round; `rounds` entries a function, in step with each other.

    Every round begins with another function, and every other one runs in reverse order, so that none always follows
    the same one. Warm-up rounds are not reported. `before` is called before each of them, outside its time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(warmup + rounds):
        for name in _order(list(functions), number):
            if before is not None:
                before()
            start = time.perf_counter()
            functions[name]()
            elapsed = time.perf_counter() - start
            if number >= warmup:
                seconds[name].append(elapsed)
    return seconds


def _order(names: list[str], number: int) -> list[str]:
    first = number // 2 % len(names)
    rotated = names[first:] + names[:first]
    return rotated if number % 2 == 0 else rotated[::-1]


def median(seconds: list[float]) -> float:
    """The middle value, which a few interrupted rounds do not move."""
    return statistics.median(seconds)


def spread(values: list[float]) -> Spread:
    """Median and quartiles; of one value, that value thrice."""
    if len(values) < 2:
        return Spread(*(values * 3))
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def uncertainty(values: list[float]) -> float:
    """Half the width of an interval that holds the true median 19 times in 20: 1.57 quartile distances / sqrt(n).

    McGill, Tukey and Larsen 1978, "Variations of Box Plots".
    """
    low, _, high = spread(values)
    return 1.57 * (high - low) / len(values) ** 0.5


def difference(longer: list[float], shorter: list[float]) -> Spread:
    """Median and quartiles of the differences within each round: what is added, without the drift between rounds."""
    return spread([a - b for a, b in zip(longer, shorter, strict=True)])


def ratio(numerator: list[float], denominator: list[float]) -> Spread:
    """Median and quartiles of the ratios within each round."""
    return spread([a / b for a, b in zip(numerator, denominator, strict=True)])
