"""Solved examples before each question, and what counts as the answer."""

import hydra
import pytest
import torch
from hydra.utils import instantiate

from lightning_rollout_is.hydra_store import conf_directory
from lightning_rollout_is.recipes.tasks import FewShot, SortDigits, Task, TaskItem
from tests.engines.installed import needs_reasoning_gym


class Sums:
    """Sums with words before them, scored in halves."""

    def sample(self, n, generator):
        pairs = torch.randint(10, (n, 2), generator=generator).tolist()
        return [TaskItem(prompt=f"Add: {a} + {b} =\n", answer=str(a + b), details={"sum": a + b}) for a, b in pairs]

    def score(self, item, response):
        return 1.0 if int(response) == item.details["sum"] else 0.5


def test_the_same_examples_are_before_every_question_and_the_lead_in_before_none():
    task = FewShot(Sums(), shots=3, lead_in="Add: ")
    assert isinstance(task, Task)
    first, second = task.sample(2, torch.Generator().manual_seed(5))
    asked = Sums().sample(2, torch.Generator().manual_seed(5))
    for item, inner in zip((first, second), asked, strict=True):
        *examples, question = item.prompt.split("\n")
        assert len(examples) == 3
        assert all(eval(example.replace("=", "==")) for example in examples)
        assert f"Add: {question}\n" == inner.prompt
        assert item.answer == inner.answer
    assert first.prompt.rsplit("\n", 1)[0] == second.prompt.rsplit("\n", 1)[0]
    assert FewShot(Sums(), seed=1).sample(1, torch.Generator())[0] != FewShot(Sums()).sample(1, torch.Generator())[0]


@pytest.mark.parametrize(
    ("response", "score"),
    [
        (" 7", 1.0),
        (" 7\n1 + 1 = 2", 1.0),
        ("= 7 or 8", 1.0),
        (" 8", 0.5),
        (" -7", 0.5),
        ("\n7", 0.0),
        ("", 0.0),
        ("seven", 0.0),
    ],
)
def test_the_first_number_of_the_first_line_is_scored_by_the_task(response, score):
    task = FewShot(Sums())
    item = TaskItem(prompt="", answer="7", details={"item": TaskItem("3 + 4 =", "7", {"sum": 7})})
    assert task.score(item, response) == score
    assert FewShot(Sums(), exact=True).score(item, response) == float(score == 1.0)


@pytest.mark.parametrize(
    ("settings", "message"), [({"shots": 0}, "shots = 0 .*from 1"), ({"answer": "["}, r"answer = '\['")]
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        FewShot(SortDigits(), **settings)


@needs_reasoning_gym
def test_the_shipped_task_asks_for_sums_of_two_digits():
    with hydra.initialize_config_dir(str(conf_directory()), version_base="1.3"):
        task = instantiate(hydra.compose("train", overrides=["task=one_digit_sums"]).task)
    for item in task.sample(20, torch.Generator().manual_seed(0)):
        *examples, question = item.prompt.split("\n")
        assert len(examples) == 4
        assert len(question) == len("2 + 5 =")
        assert task.score(item, f" {item.answer}\n") == 1.0
        assert task.score(item, f" {item.answer}1\n") == 0.0
