"""What ``import lightning_rollout_is`` gives, and what it does not load."""

import subprocess
import sys

import pytest

import lightning_rollout_is


def modules_after(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_every_public_name_is_there_and_listed():
    assert sorted(lightning_rollout_is._ROOM_OF) == sorted(lightning_rollout_is.__all__) == dir(lightning_rollout_is)
    for name in lightning_rollout_is.__all__:
        assert getattr(lightning_rollout_is, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'lightning_rollout_is' has no attribute 'RolloutISMetric'"):
        _ = lightning_rollout_is.RolloutISMetric


def test_the_front_door_loads_no_torch():
    assert "torch" not in modules_after("import lightning_rollout_is")


@pytest.mark.parametrize("absent", ["lightning", "pytorch_lightning", "hydra", "omegaconf", "torchmetrics"])
def test_the_arithmetic_needs_torch_alone(absent):
    assert absent not in modules_after("from lightning_rollout_is.functional import importance_weights")
