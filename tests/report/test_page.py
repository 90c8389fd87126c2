"""What the page says, and that it needs nothing but itself."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from lightning_rollout_is.event_files import Curve
from lightning_rollout_is.health.advice import ADVICE
from lightning_rollout_is.healthy_ranges import RANGES
from lightning_rollout_is.plots import COLORS, PLOTS
from lightning_rollout_is.report.page import Judged, facts_of, gravest_first, page, pieces
from lightning_rollout_is.report.problem import Verdict
from lightning_rollout_is.report.verdict import judge
from tests.report.written import DETAILS, groups, run_of


def judged(folder, name, **settings):
    run = run_of(folder / "".join(filter(str.isalnum, name)), **settings)._replace(name=name)
    return Judged(run, judge(run))


@pytest.fixture
def two(tmp_path):
    sick = judged(tmp_path, "sick", rollout_is_eff_sample_size=0.1)
    return gravest_first([judged(tmp_path, "sound"), sick])


class Reader(HTMLParser):
    """The text of a page, its tags with attributes, and whether every tag is closed."""

    VOID = ("meta", "br", "wbr")

    def __init__(self, text):
        super().__init__()
        self.words, self.tags, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "svg"} & set(self.open):
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def test_the_gravest_run_comes_first_with_what_to_do(two):
    text = Reader(page(two, [], "1.0")).text
    assert text.index("✕ UNHEALTHY sick") < text.index("✓ HEALTHY sound")
    assert "since step 0, at every point" in text
    assert "What to do:" in text
    assert "algorithm.rollout_is_level: geometric" in text
    assert (
        "Every value lies in its healthy range: nothing to do. at worst: K3 1e-06 , effective sample size 0.999" in text
    )
    assert "mismatch/rollout_is_eff_sample_size 0.1 at worst, threshold 0.3 · at worst: K3" in text


def test_the_page_is_well_formed_and_fetches_nothing(two):
    text = page(two, [], "1.0")
    read = Reader(text)
    assert not read.open
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in read.tags}
    for _, attributes in read.tags:
        assert not {"src", "srcset"} & set(attributes)
        assert all(re.match("#", attributes[name]) for name in ("href", "xlink:href") if name in attributes)
    assert not re.search(r"url\((?!#)|@import", text)


def test_pictures_are_sound_and_take_the_pages_colour(two):
    pictures = re.findall(r"<svg.*?</svg>", page(two, [], ""), re.DOTALL)
    assert len(pictures) == 7
    for picture in pictures:
        ElementTree.fromstring(picture)
        assert "currentColor" in picture
        assert "#010203" not in picture
        assert all(color.lower() in picture for color in COLORS[:2])


def test_details_have_pictures_and_rows_of_their_own(tmp_path):
    one = judged(tmp_path, "one", **DETAILS, **groups("mismatch_kl", math=0.002))
    text = page([one], [], "")
    titles = [attributes["aria-label"] for tag, attributes in Reader(text).tags if tag == "figure"]
    assert titles[7:] == [detail.title for detail in PLOTS[8:14]] + ["KL(rollout || training), by group"]
    assert text.index("<h2>Curves") < text.index("<h2>Numbers") < text.index("<h2>Where the mismatch lies")
    assert "Effective sample size of the applied weights 0.998 0.998 @0 0.998" in Reader(text).text


def test_without_details_there_is_no_place_for_them(two):
    assert "Where the mismatch lies" not in page(two, [], "")


def test_the_same_runs_give_the_same_page(two):
    assert page(two, [], "1.0") == page(two, [], "1.0")


def test_numbers_of_all_runs_are_in_one_table(two):
    text = Reader(page(two, [], "")).text
    assert "Effective sample size, share of the batch 0.1 0.1 @0 0.1 0.999 0.999 @0 0.999" in text


def test_every_curve_is_in_the_page(two):
    text = Reader(page(two, [], "")).text
    assert all(name in text for one in two for name in one.run.curves)


def test_what_differs_is_shown_and_the_rest_is_not(two):
    with_settings = [
        Judged(one.run._replace(configuration={"actor.lr": str(number), "seed": "1"}), one.verdict)
        for number, one in enumerate(two)
    ]
    text = page(with_settings, [], "")
    differs = Reader(text[text.index("<h2>What differs") : text.index("<h2>All values")]).text
    assert "actor. lr 0 1" in differs
    assert "seed" not in differs


def test_names_and_settings_are_no_markup(tmp_path):
    one = judged(tmp_path, "<script>alert(1)</script>")
    one = Judged(one.run._replace(configuration={"<b>": "<i>&"}, notes=["<u>"]), one.verdict)
    other = Judged(one.run._replace(configuration={"<b>": "a.<i>"}), one.verdict)
    text = page([one, other], ["<s>"], "<p>")
    assert "a.<wbr>&lt;i&gt;" in text
    assert not re.search("<(script|b|i|u|s)>", text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_notes_and_what_was_not_read_are_on_the_page(tmp_path):
    one = judged(tmp_path, "short", length=1)
    text = Reader(page([one], ["/somewhere: nothing there"], "")).text
    assert "Not read: /somewhere: nothing there" in text
    assert "there is one point only" in text


def test_without_matplotlib_the_page_says_what_is_missing(two, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = page(two, [], "")
    assert "pip install &#39;lightning-rollout-is[plots]&#39;" in text
    assert "<svg" not in text
    assert "UNHEALTHY" in text


def test_a_page_stays_small_however_long_the_run(tmp_path):
    one = judged(tmp_path, "long", length=2)

    def page_of(points):
        curves = {name: Curve(range(points), [0.9, 1.1] * (points // 2)) for name in one.run.curves}
        return page([Judged(one.run._replace(curves=curves), one.verdict)], [], "")

    assert len(page_of(20_000)) < 1.2 * len(page_of(2000))


def test_many_runs_are_all_there(tmp_path):
    runs = [judged(tmp_path, f"run{number}", length=2) for number in range(len(COLORS) + 2)]
    text = Reader(page(runs, [], "")).text
    assert all(one.run.name in text for one in runs)


def test_facts_are_the_settings_that_tell_most(two):
    settings = {
        "actor_rollout_ref.rollout.name": "int4",
        "algorithm.rollout_is": "True",
        "algorithm.rollout_is_level": "token",
        "callbacks.rollout_is.every_n_steps": "1",
    }
    facts = facts_of(two[0].run._replace(configuration=settings))
    assert facts == {"rollout": "int4", "level": "token", "corrects the loss": "True"}


@pytest.mark.parametrize("remedy", [one.remedy for one in (*RANGES.values(), *ADVICE.values()) if one.remedy])
def test_settings_in_remedies_are_whole(remedy):
    """A value that follows a key is set like it, whatever it is made of."""
    for key, value in re.findall(r"([a-z_]+(?:\.[a-z_]+)+): ([^\s,;)]+)", remedy):
        assert (f"{key}: {value}", True) in pieces(remedy)


def test_order_is_by_gravity_and_stable():
    grades = ["healthy", "watch", "unhealthy", "healthy", "unhealthy"]
    runs = [Judged(number, Verdict(grade, ())) for number, grade in enumerate(grades)]
    assert [one.run for one in gravest_first(runs)] == [2, 4, 1, 0, 3]
