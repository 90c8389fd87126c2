"""Random settings, masks and values against invariants instead of numbers: 10^3 cases here, 10^5 by ``make fuzz``."""

import os
import time

from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as runs

from tests.fuzz.cases import CASES_PER_GROUP, Group, groups
from tests.fuzz.invariants import check

CASES = int(os.environ.get("FUZZ_CASES", "1000"))
EVERY = 5000


class Progress:
    """A line every so many cases; ``pytest -s`` shows it."""

    def __init__(self) -> None:
        self.done, self.start = 0, time.monotonic()

    def step(self) -> None:
        self.done += CASES_PER_GROUP
        if self.done % EVERY < CASES_PER_GROUP:
            seconds = time.monotonic() - self.start
            print(f"{self.done} of {CASES} cases, {seconds:.0f} s", flush=True)


PROGRESS = Progress()


# Groups come from a seed, which nothing can shrink; `check` shows the one case at fault instead.
@runs(
    max_examples=-(-CASES // CASES_PER_GROUP),
    phases=[Phase.generate],
    report_multiple_bugs=False,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(group=groups())
def test_invariants(group: Group) -> None:
    check(group)
    PROGRESS.step()


def test_as_many_cases_ran_as_were_asked_for() -> None:
    assert PROGRESS.done >= CASES
