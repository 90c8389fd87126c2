"""The one statement of all these tests: every point is what one process gets from all data of its optimizer step."""

import pytest

from lightning_rollout_is import RolloutISConfig
from tests.trainer.policy import ALGORITHM
from tests.trainer.runs import curves, expected

CONFIG = RolloutISConfig.from_mapping(ALGORITHM)


def assert_curves_are_exact(folder, steps, windows, prefix="mismatch/"):
    """At each of ``steps`` one point, of the micro-batches in its window, and no other point."""
    written = curves(folder)
    ours = {tag: points for tag, points in written.items() if tag.startswith(prefix)}
    points = {tag: dict(each) for tag, each in ours.items()}
    assert all(len(points[tag]) == len(each) for tag, each in ours.items())
    right = {}
    for step, window in zip(steps, windows, strict=True):
        for name, value in expected(window, CONFIG).items():
            # Event files hold float32.
            right.setdefault(prefix + name, {})[step] = pytest.approx(value, rel=2e-6, abs=1e-6)
    assert points == right


def loss_steps(folder):
    """Where Lightning put the loss that the module logged itself: strictly increasing."""
    steps = [step for step, _ in curves(folder)["loss"]]
    assert steps == sorted(set(steps))
    return steps


def assert_points_follow_the_loss(folder, windows):
    """One point per logged loss, at the same x, each of its window."""
    assert_curves_are_exact(folder, loss_steps(folder), windows)
