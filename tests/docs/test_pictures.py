"""The pictures and the figures beside them are whole, small, and of the runs that the script makes."""

import csv
import importlib.util
import math
import re

import pytest
from sick_engines import BeforeTemperature, FirstTokenMissing, HotterThanTold, ShiftedByOne

from lightning_rollout_is.engines import Completion
from lightning_rollout_is.event_files import Curve, EventLog
from tests.docs.pages import DOCS, text
from tests.engines.tiny import tiny_policy, trainer_log_probs

PICTURES = DOCS / "pictures"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("pictures", PICTURES / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_every_picture_and_no_other(script):
    shown = re.findall(r"!\[[^\]]+\]\(pictures/(\w+)\.png\)", text("reading_the_curves"))
    assert sorted(shown) == sorted(script.PICTURES)
    assert sorted(file.stem for file in PICTURES.glob("*.png")) == sorted(shown)


def test_pictures_are_small():
    sizes = [file.stat().st_size for file in PICTURES.glob("*.png")]
    assert max(sizes) < 150_000
    assert sum(sizes) < 1_000_000


def test_the_table_is_of_the_runs_of_the_script(script):
    with (PICTURES / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["run"]: tuple(row["overrides"].split()) for row in rows} == script.RUNS
    assert [*rows[0]][2:-2] == list(script.QUOTED.values())


def test_every_picture_is_of_runs_that_are_made(script):
    for picture in script.PICTURES.values():
        assert set(picture.runs) <= script.RUNS.keys()


def test_a_picture_has_a_line_for_each_run_in_each_panel(script):
    curve = Curve([0, 1], [0.5, 0.6])
    names = {name for panel in script.PICTURES["engines"].panels for name in panel.curves}
    log = EventLog({**{f"mismatch/{name}": curve for name in names}, "reward": curve}, {}, [])
    figure = script.draw(script.PICTURES["engines"], dict.fromkeys(script.RUNS, log))
    lines = [[line for line in axes.lines if len(line.get_xdata()) == 2] for axes in figure.axes]
    assert len(figure.axes) == 4
    assert all(len({line.get_color() for line in drawn}) >= 3 for drawn in lines)


def test_rules_are_told_with_the_share_of_steps_at_which_they_held(script):
    curves = {"mismatch/mismatch_kl": Curve([0, 1, 2, 3], [0.0, 0.3, 0.3, 0.0])}
    assert script.rules_of(EventLog(curves, {}, [])) == "kl (50%)"
    assert script.rules_of(EventLog({"mismatch/mismatch_kl": Curve([0], [0.0])}, {}, [])) == "none"
    gap = {"mismatch/rollout_is_std": Curve([3], [2.0]), "mismatch/mismatch_kl": Curve([2, 3], [0.0, 0.0])}
    assert script.rules_of(EventLog(gap, {}, [])) == "std (50%)"


class Sound:
    """Answers every prompt alike, and remembers at which temperature."""

    def generate(self, prompts, max_new_tokens, temperature=1.0):
        self.temperature = temperature
        return [Completion([7, 8, 9], [-1.0, -2.0, -3.0]) for _ in prompts]

    def sync_weights(self, policy):
        self.policy = policy


@pytest.mark.parametrize(
    ("sick", "reported"), [(ShiftedByOne, [-3.0, -1.0, -2.0]), (FirstTokenMissing, [math.nan, -2.0, -3.0])]
)
def test_what_a_sick_engine_reports(sick, reported):
    (completion,) = sick(Sound()).generate([[1]], 3)
    assert completion.token_ids == [7, 8, 9]
    assert completion.log_probs == pytest.approx(reported, nan_ok=True)


def test_a_hot_engine_samples_at_its_own_temperature():
    sound = Sound()
    HotterThanTold(sound, 1.5).generate([[1]], 3, temperature=2.0)
    assert sound.temperature == 3.0


def test_log_probs_from_before_the_temperature_are_those_of_temperature_1():
    policy, sound = tiny_policy(), Sound()
    engine = BeforeTemperature(sound)
    engine.sync_weights(policy)
    (completion,) = engine.generate([[1, 2]], 3, temperature=0.5)
    expected = trainer_log_probs(policy, [[1, 2]], [completion]).tolist()
    assert completion.log_probs == pytest.approx(expected, abs=1e-5)
    assert sound.temperature == 0.5
