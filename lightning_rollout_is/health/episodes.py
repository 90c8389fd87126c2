"""When something that is wrong began, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass
class Episode:
    """A rule that holds, or has held so recently that it may hold again at the next point."""

    since: int
    """Step since which it holds without a break."""
    first: int
    """Step at which it first held."""
    held: int = 0
    """Points in a row at which it has held."""
    healthy: int = 0
    """Points in a row at which it has not."""
    begun: bool = False
    """Whether it has held long enough to be told of."""


class Episodes:
    """Tells the beginning and the end of a rule from its ups and downs.

    Args:
        patience: Points in a row for which a rule must hold before its episode begins.
        recovery: Points in a row for which it must not hold before the episode ends.

    Example:
        >>> episodes = Episodes(patience=2, recovery=1)
        >>> episodes.holds("kl", 10), episodes.holds("kl", 11)  # whether it has just begun
        (False, True)
        >>> episodes.fails("kl")  # the step at which what has just ended began
        10
    """

    def __init__(self, patience: int, recovery: int) -> None:
        self.patience = patience
        self.recovery = recovery
        self._open: dict[str, Episode] = {}

    def holds(self, rule: str, step: int) -> bool:
        """Note that a rule holds; whether its episode has just begun."""
        episode = self._open.setdefault(rule, Episode(since=step, first=step))
        if episode.held == 0:
            episode.since = step
        episode.held, episode.healthy = episode.held + 1, 0
        begins = not episode.begun and episode.held >= self.patience
        episode.begun |= begins
        return begins

    def fails(self, rule: str) -> int | None:
        """Note that a rule does not hold; the first step of its episode if that has just ended."""
        episode = self._open.get(rule)
        if episode is None:
            return None
        episode.held, episode.healthy = 0, episode.healthy + 1
        if episode.begun and episode.healthy < self.recovery:
            return None
        del self._open[rule]
        return episode.first if episode.begun else None

    def since(self, rule: str) -> int:
        """The step since which a rule that holds does so without a break."""
        return self._open[rule].since

    @property
    def open(self) -> dict[str, int]:
        """The rules that have been told of and are not over, and the first step of each episode."""
        return {rule: episode.first for rule, episode in self._open.items() if episode.begun}

    def state_dict(self) -> dict[str, dict[str, int]]:
        """The open episodes, as plain numbers."""
        return {rule: asdict(episode) for rule, episode in self._open.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, int]]) -> None:
        """Go on from a state."""
        self._open = {rule: Episode(**episode) for rule, episode in state.items()}  # type: ignore[arg-type]
