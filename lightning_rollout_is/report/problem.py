"""What is wrong with a run, in words."""

from __future__ import annotations

from typing import NamedTuple

from lightning_rollout_is.healthy_ranges import Grade


class Problem(NamedTuple):
    """One thing that is wrong, over all the points of a run."""

    grade: Grade
    metric: str
    """Without prefix."""
    first: int
    """Step at which it was first seen."""
    since: int
    """Step since which it holds, where it holds at the end."""
    lasting: bool
    """Whether it holds at the end."""
    share: float
    """Of the points at which it holds."""
    message: str
    """What is wrong, in plain words."""
    numbers: str
    """What it was seen by."""
    causes: tuple[str, ...]
    """Likely ones, the likeliest first."""
    remedy: str

    def when(self) -> str:
        """Since when, and how often.

        Example:
            >>> Problem("watch", "mismatch_kl", 40, 40, False, 0.02, "the KL is large", "0.2", (), "").when()
            'first at step 40, at 2% of the points, over by the end'
            >>> Problem("unhealthy", "mismatch_kl", 3, 40, True, 0.2, "the KL is large", "0.2", (), "").when()
            'since step 40 and before, from step 3 on, at 20% of the points'
        """
        share = "at every point" if self.share == 1.0 else f"at {_percent(self.share)} of the points"
        if not self.lasting:
            return f"first at step {self.first}, {share}, over by the end"
        before = f" and before, from step {self.first} on" if self.first < self.since else ""
        return f"since step {self.since}{before}, {share}"

    def headline(self) -> str:
        """One sentence, without the numbers.

        Example:
            >>> Problem("watch", "mismatch_kl", 0, 0, True, 1.0, "the KL is large", "0.2", (), "").headline()
            'The KL is large, since step 0, at every point.'
        """
        return f"{self.message[:1].upper()}{self.message[1:]}, {self.when()}."


class Verdict(NamedTuple):
    """What to think of a run."""

    grade: Grade
    problems: tuple[Problem, ...]
    """The gravest first."""

    @property
    def since(self) -> int | None:
        """Step at which the gravest problem was seen; ``None`` for a healthy run."""
        if not self.problems:
            return None
        return self.problems[0].since if self.problems[0].lasting else self.problems[0].first

    def headline(self) -> str:
        """One sentence.

        Example:
            >>> Verdict("healthy", ()).headline()
            'Every value lies in its healthy range: nothing to do.'
        """
        return self.problems[0].headline() if self.problems else "Every value lies in its healthy range: nothing to do."


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share >= 0.001 else "under 0.1%"
