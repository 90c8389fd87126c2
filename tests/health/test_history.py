"""Episodes: since when, told once, over when it is over, and the same after a resume at any point."""

import json
import math
import pickle
import random

import pytest

from lightning_rollout_is.health import HealthHistory, Rules, check
from tests.health.points import SAME_TENSOR, point, rules_of

SICK = point(mismatch_kl=0.3, mismatch_k3_kl=0.25)
# No rule over a window, so that each point speaks for itself.
PLAIN = {"jump": None, "falling_eff_sample_size": None, "unchanged": None}


def told(points, steps=None, **settings):
    """(step, begun, ended) wherever something begins or ends."""
    history = HealthHistory(Rules(**{**PLAIN, **settings}))
    events = []
    for step, values in zip(steps or range(len(points)), points, strict=True):
        history.observe(step, values)
        if history.begun or history.ended:
            events.append((step, rules_of(history.begun), history.ended))
    return events


def test_an_episode_is_told_once_and_its_end_once():
    points = [point()] * 3 + [SICK] * 50 + [point()] * 30 + [SICK] * 2
    assert told(points) == [(3, ["kl"], {}), (62, [], {"kl": 3}), (83, ["kl"], {})]


def test_up_and_down_is_one_episode():
    assert told([SICK, *[point()] * 9] * 5) == [(0, ["kl"], {})]
    assert told([SICK, *[point()] * 10] * 2) == [
        (0, ["kl"], {}),
        (10, [], {"kl": 0}),
        (11, ["kl"], {}),
        (21, [], {"kl": 11}),
    ]


@pytest.mark.parametrize("recovery", [1, 3])
def test_recovery(recovery):
    events = told([SICK] + [point()] * 5, recovery=recovery)
    assert events == [(0, ["kl"], {}), (recovery, [], {"kl": 0})]


def test_patience_waits_for_points_in_a_row():
    assert told([SICK, SICK, point()] * 4, patience=3) == []
    assert told([SICK, SICK, point(), SICK, SICK, SICK, SICK], patience=3) == [(5, ["kl"], {})]


def test_what_never_began_does_not_end():
    assert told([SICK, SICK, *[point()] * 20], patience=3) == []


def test_open_episodes_have_been_told_of_and_are_not_over():
    history = HealthHistory(Rules(**PLAIN, patience=2, recovery=2))
    seen = []
    for step, values in enumerate([point(), SICK, SICK, point(), SICK, point(), point()]):
        history.observe(step, values)
        seen.append(history.open)
    assert seen == [{}, {}, {"kl": 1}, {"kl": 1}, {"kl": 1}, {"kl": 1}, {}]


def test_a_finding_holds_since_the_first_point_without_a_break():
    history = HealthHistory(Rules(**PLAIN, patience=2))
    since = {}
    for step, values in zip(range(10, 90, 10), [point(), SICK, SICK, point(), SICK, SICK, SICK, point()], strict=True):
        since[step] = [finding.since for finding in history.observe(step, values)]
    assert since == {10: [], 20: [20], 30: [20], 40: [], 50: [50], 60: [50], 70: [50], 80: []}


def test_the_first_step_of_an_episode_is_told_at_its_end():
    assert told([SICK, point(), SICK, *[point()] * 10], steps=range(100, 113))[-1] == (112, [], {"kl": 100})


def test_rules_have_episodes_of_their_own():
    veto = point(rollout_is_veto_fraction=0.5)
    both = {**SICK, "mismatch/rollout_is_veto_fraction": 0.5}
    assert told([veto, both, SICK], recovery=1) == [
        (0, ["veto_fraction"], {}),
        (1, ["kl"], {}),
        (2, [], {"veto_fraction": 0}),
    ]


@pytest.mark.parametrize("gap", [{}, point(mismatch_kl=math.nan)])
def test_a_value_that_is_not_there_neither_holds_nor_ends(gap):
    history = HealthHistory(Rules(**PLAIN, recovery=1))
    history.observe(0, SICK)
    assert history.observe(1, gap) == []
    assert (history.begun, history.ended) == ([], {})
    (finding,) = history.observe(2, SICK)
    assert finding.since == 0


def test_each_point_is_judged_as_check_does():
    history = HealthHistory(Rules(**PLAIN))
    for step, values in enumerate([point(), SICK, point(rollout_is_mean=3.0), point(SAME_TENSOR)]):
        found = history.observe(step, values)
        assert [finding._replace(since=0) for finding in found] == check(values)


def test_another_prefix():
    (finding,) = HealthHistory(prefix="mine/").observe(3, point(prefix="mine/", rollout_is_std=2.0))
    assert (finding.metric, finding.since) == ("mine/rollout_is_std", 3)
    assert HealthHistory(prefix="mine/").observe(3, SICK) == []


def wild(seed, points=160):
    """A run in which every rule over a window, and some of one point, come and go."""
    draw = random.Random(seed)
    run = []
    for step in range(points):
        k3 = 0.002 if step % 50 < 35 else 0.08
        ess = 0.95 - 0.4 * math.sin(step / 40) ** 2
        base = {"mismatch_k3_kl": k3, "rollout_is_eff_sample_size": ess, "mismatch_kl": draw.gauss(0.05, 0.05)}
        run.append(point(SAME_TENSOR) if 100 <= step < 125 else point(**base))
    return run


def diary(history, points, first=0):
    return [
        (step, history.observe(step, values), history.begun, history.ended)
        for step, values in enumerate(points, start=first)
    ]


@pytest.mark.parametrize("rules", [Rules(), Rules(patience=3, recovery=2, window=8)], ids=["default", "patient"])
def test_resumed_at_any_point_it_says_what_it_would_have_said(rules):
    points = wild(0)
    whole = diary(HealthHistory(rules), points)
    begun = {finding.rule for _, _, findings, _ in whole for finding in findings}
    assert begun >= {"unchanged", "jump"}
    for cut in range(len(points)):
        before, after = HealthHistory(rules), HealthHistory(rules)
        diary(before, points[:cut])
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        assert diary(after, points[cut:], first=cut) == whole[cut:]


def test_a_state_is_of_its_time():
    history = HealthHistory()
    history.observe(0, SICK)
    state = history.state_dict()
    before = json.dumps(state)
    diary(history, wild(1), first=1)
    assert json.dumps(state) == before
    HealthHistory().load_state_dict(state)
    diary(history, wild(2), first=200)
    assert json.dumps(state) == before


def test_a_state_stays_small():
    history = HealthHistory()
    diary(history, wild(3, points=1000))
    assert len(json.dumps(history.state_dict())) < 5000


def test_a_state_of_a_longer_window_goes_on_with_a_shorter_one():
    long, short = HealthHistory(Rules(window=40)), HealthHistory(Rules(window=4))
    diary(long, [point()] * 50)
    short.load_state_dict(long.state_dict())
    assert rules_of(short.observe(50, point(mismatch_k3_kl=0.09))) == ["jump"]
    assert len(short.state_dict()["trends"]["ess"]) == 4


def test_a_history_pickles():
    history = HealthHistory()
    history.observe(0, SICK)
    assert pickle.loads(pickle.dumps(history)).state_dict() == history.state_dict()


def test_what_may_explain_the_rest_comes_first():
    history = HealthHistory()
    for step in range(20):
        found = history.observe(step, point(SAME_TENSOR, rollout_is_missing_fraction=0.5, rollout_is_std=2.0))
    assert rules_of(found) == ["missing_fraction", "unchanged", "std"]
