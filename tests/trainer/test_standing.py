"""When a value counts as outside its healthy range: one point neither makes nor ends it."""

import pytest

from lightning_rollout_is.callbacks.standing import PATIENCE, RECOVERY, Standing

GOOD, BAD, WORST = 0.0, 0.05, 0.5


def after(*kl):
    standing = Standing()
    for step, number in enumerate(kl):
        standing.observe({"mismatch_kl": number}, step)
    return standing


@pytest.mark.parametrize(
    ("kl", "since"),
    [
        ([BAD], 0),
        ([GOOD], None),
        ([GOOD] + [BAD] * (PATIENCE - 1), None),
        ([GOOD] + [BAD] * PATIENCE, 1),
        ([GOOD, BAD, BAD, GOOD, BAD, BAD], None),
        ([BAD] + [GOOD] * (RECOVERY - 1), 0),
        ([BAD] + [GOOD] * RECOVERY, None),
        ([BAD, *[GOOD] * (RECOVERY - 1), BAD, *[GOOD] * (RECOVERY - 1)], 0),
        ([BAD, *[GOOD] * RECOVERY, *[BAD] * PATIENCE], RECOVERY + 1),
    ],
)
def test_since_when(kl, since):
    outside = after(*kl).outside
    assert (outside["mismatch_kl"].since if outside else None) == since


def test_counts_tell_what_calls_for_action_from_what_is_to_be_watched():
    assert after(GOOD).counts() == {"values_to_watch": 0.0, "values_unhealthy": 0.0}
    assert after(BAD).counts() == {"values_to_watch": 1.0, "values_unhealthy": 0.0}
    assert after(WORST).counts() == {"values_to_watch": 1.0, "values_unhealthy": 1.0}


def test_values_that_are_not_defined_change_nothing():
    standing = after(BAD)
    standing.observe({"mismatch_kl": float("nan"), "rollout_is_mean": float("inf")}, 1)
    assert list(standing.values) == ["mismatch_kl"]
    assert standing.outside["mismatch_kl"].since == 0
