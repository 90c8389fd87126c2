"""One thing that is wrong."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """What a rule says of a run.

    Example:
        >>> finding = Finding("kl", "mismatch/mismatch_kl", 0.2, 0.1, 7, "the KL is large", ("int4",), "use bf16")
        >>> print(finding.described())
        the KL is large (mismatch/mismatch_kl = 0.2, threshold 0.1, since step 7). Likely causes: (1) int4. What to do:
        use bf16.
    """

    rule: str
    """Name of the rule, which is the field of :class:`Rules` that holds its threshold."""
    metric: str
    """Name of the scalar, with its prefix."""
    value: float
    threshold: float
    """What the value was compared with."""
    since: int
    """Step since which the rule holds without a break."""
    message: str
    """What is wrong, in plain words."""
    causes: tuple[str, ...]
    """Likely causes, most likely first."""
    remedy: str
    """What to set or to look at; an exact line of the configuration where there is one."""

    def described(self) -> str:
        """All of it in one paragraph."""
        causes = "; ".join(f"({number}) {cause}" for number, cause in enumerate(self.causes, start=1))
        return (
            f"{self.message} ({self.metric} = {self.value:.4g}, threshold {self.threshold:.4g}, since step "
            f"{self.since}). Likely causes: {causes}. What to do: {self.remedy}."
        )
