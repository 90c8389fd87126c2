"""The tables of docs/estimators.md are what the code gives, and the code gives what the fractions give."""

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from examples.estimators import moments, tables
from examples.estimators import worlds as made
from examples.estimators.__main__ import BEGIN, END, main
from tests.estimators import exact
from tests.estimators.exact import PREFIXES, TOKENS, TRAJECTORIES, Setting, World, mean, ratios
from tests.estimators.worlds import centred, filtered, normalised, pushed

PAGE = Path(__file__).parents[2] / "docs" / "estimators.md"
RESPONSES = made.responses_of(TOKENS, 3)
SIZES = {"small": Fraction(1, 100), "medium": Fraction(1, 10), "large": Fraction(2, 5)}


def in_fractions(draw, size):
    """The world of a draw."""
    train = {
        p: normalised(dict(zip(TOKENS, map(Fraction, o), strict=True)))
        for p, o in zip(PREFIXES, draw.odds, strict=True)
    }
    rewards = dict(zip(TRAJECTORIES, map(Fraction, draw.rewards), strict=True))
    return World(train, pushed(train, dict(zip(PREFIXES, draw.push, strict=True)), size), centred(train, rewards))


def setting_of(settings):
    if settings is None:
        return Setting()
    upper = Fraction(str(settings["upper"]))
    veto = Fraction(str(settings["veto"] or 0))
    return Setting(settings["level"], settings.get("mode", "truncate"), upper, 1 / upper, veto)


def exact_summary(world, setting):
    right, found = exact.expected(world.on_policy), exact.expected(world, setting)
    length = math.sqrt(exact.square(right) * exact.square(found))
    inner = sum(float(value * right.get(key, 0)) for key, value in found.items())
    return (
        math.sqrt(exact.square(exact.minus(found, right)) / exact.square(right)),
        inner / length if length else math.nan,
        float(exact.variance(world, setting) / exact.variance(world.on_policy)),
        exact.effective_sample_size(world, setting),
    )


def assert_summary(summary, row, world, settings):
    ours = [x[row].item() for x in summary]
    assert ours == pytest.approx(exact_summary(world, setting_of(settings)), rel=1e-8, abs=1e-9, nan_ok=True)


def test_both_count_the_same_responses():
    assert (RESPONSES.prefixes, RESPONSES.words) == (PREFIXES, TRAJECTORIES)
    assert {name: float(size) for name, size in SIZES.items()} == tables.SIZES


@pytest.mark.parametrize("name", SIZES)
def test_the_estimators_of_the_tables_in_fractions(name):
    found = tables.summaries(tables.documented(tables.SIZES[name]))
    for seed in (0, 1, 98):
        world = in_fractions(made.draw(seed, RESPONSES), SIZES[name])
        for key, settings in tables.ESTIMATORS.items():
            assert_summary(found[key], seed, world, settings)


def test_the_mismatch_in_fractions():
    k3, chi_square = moments.mismatch(tables.documented(tables.SIZES["large"]))
    world = in_fractions(made.draw(7, RESPONSES), SIZES["large"])
    tokens = mean(world.rollout, len)
    squares = mean(world.rollout, lambda t: sum(r**2 for r in ratios(world, t))) / tokens
    assert chi_square[7].item() == pytest.approx(float(squares - 1))
    logs = mean(world.rollout, lambda t: sum(r - 1 - math.log(r) for r in ratios(world, t)))
    assert k3[7].item() == pytest.approx(float(logs / tokens))


@pytest.mark.parametrize("veto", [None, tables.VETO])
def test_the_faulty_token_in_fractions(veto):
    world, chances = in_fractions(made.draw(5, RESPONSES), Fraction(0)), (Fraction(1, 10**5), Fraction(1, 5))
    first = [{**world.train, "": faulty(world.train[""], chance)} for chance in chances]
    rewards = centred(first[0], world.advantage)
    for key in tables.UNBOUNDED[1:]:
        settings = {**tables.ESTIMATORS[key], "veto": veto}
        worlds = tables.with_a_fault()
        found = moments.summary(moments.moments(worlds, settings), moments.moments(worlds.on_policy, None))
        assert_summary(found, 5, World(*first, rewards), settings)


def test_the_filter_in_fractions():
    found = tables.summaries(tables.with_a_filter(), tables.UNBOUNDED)
    world = filtered(in_fractions(made.draw(8, RESPONSES), Fraction(0)))
    for key in tables.UNBOUNDED:
        assert_summary(found[key], 8, world, tables.ESTIMATORS[key])


def faulty(odds, chance):
    others = normalised({token: odds[token] for token in TOKENS[:-1]})
    return {**{token: p * (1 - chance) for token, p in others.items()}, TOKENS[-1]: chance}


def test_two_tokens_by_hand():
    worlds, seed = tables.of_length(2, 0.1), 3
    draw = made.draw(seed, worlds.responses)
    train = [normalised(dict(enumerate(map(Fraction, row)))) for row in draw.odds]
    tilted = [
        {t: p * (1 + Fraction(up, 10)) for (t, p), up in zip(row.items(), ups, strict=True)}
        for row, ups in zip(train, draw.push, strict=True)
    ]
    rollout = [normalised(row) for row in tilted]
    first, second = draw.rewards[:2], draw.rewards[2:]

    def logit(policy):
        """Derivative by the logit of the first token's second choice, p0 p1 (Q1 - Q0), going on with this policy."""
        return train[0][0] * train[0][1] * (after(policy[2], second) - after(policy[1], first))

    for key, by_hand in (("sequence", logit(train)), ("token", logit(rollout))):
        found = moments.moments(worlds, tables.ESTIMATORS[key, "no bound"]).gradient[seed, 1].item()
        assert found == pytest.approx(float(by_hand))


def after(chances, rewards):
    return sum(chances[t] * reward for t, reward in enumerate(rewards))


def test_where_the_sequence_level_begins_to_be_better_in_fractions():
    world, seed = in_fractions(made.draw(6, RESPONSES), SIZES["medium"]), 6
    for key in tables.UNBOUNDED[:2]:
        other = Setting(key[0])
        spread = exact.variance(world, Setting("sequence")) - exact.variance(world, other)
        found = tables.break_even(tables.documented(tables.SIZES["medium"]), key)
        assert found[seed].item() == pytest.approx(float(spread / exact.square(exact.bias(world, other))))


@pytest.mark.parametrize("row", ["token-mean, two responses", "token-mean, very many responses"])
def test_token_mean_in_fractions(row):
    draw = made.draw(4, RESPONSES)
    found, right = (token_mean(w, row) for w in both(in_fractions(draw, SIZES["large"])))
    expected = math.sqrt(exact.square(exact.minus(found, right)) / exact.square(right))
    ours = tables._deviation(tables.documented(tables.SIZES["large"]), tables.SCALES[row])
    assert ours[4].item() == pytest.approx(expected)
    assert expected > 1e-3


def both(world):
    return world, world.on_policy


def token_mean(world, row):
    """Of a batch's summed gradients over its number of tokens; very many responses have the expected number."""

    def tokens(trajectory):
        if "two" in row:
            return 1 / mean(world.rollout, lambda other: Fraction(2, len(trajectory) + len(other)))
        return mean(world.rollout, len)

    return exact.expected(world, Setting("sequence"), tokens)


def test_every_number_of_the_prose_is_in_a_table():
    prose, shown = PAGE.read_text().split("## What follows")[1].split("## The tables")
    worked_out = {
        "0.7",  # log 2
        "13",  # 99 - 86
        "0.007",  # 0.269 - 0.262
        "0.003",  # K3 at the medium mismatch
        f"{math.sqrt(2 * 3.0e-05 / 3):.4f}",
        f"{math.sqrt(2 * 3.0e-05 / 1000):.5f}",
    }
    numbers = re.findall(r"(?<![\w^])\d+(?:\.\d+)?(?:e-\d+)?(?![\w^])", prose)
    assert len(numbers) > 40
    assert {number for number in numbers if len(number) > 1} - worked_out <= set(re.findall(r"[\d.e-]+", shown))


def test_the_page_holds_what_the_code_gives(tmp_path):
    copy = tmp_path / "page.md"
    copy.write_text(PAGE.read_text().split(BEGIN)[0] + BEGIN + END + PAGE.read_text().split(END)[1])
    main([str(copy)])
    assert copy.read_text() == PAGE.read_text()
