"""A run that goes on from a checkpoint repeats no warning and forgets none."""

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_rollout_is import RolloutISCallback, RolloutISHealth
from tests.health.runs import OK, RULES, SICK, WORSE, batches, run
from tests.trainer.late import LateCallback
from tests.trainer.runs import ResumableBatches

SHIFTS = [OK, SICK, SICK, WORSE, OK, OK, OK, SICK]
pytestmark = [
    # The resumed run writes no checkpoints.
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks:UserWarning"),
]


def events(told):
    return told.begun + told.ended


@pytest.mark.parametrize("health_first", [True, False])
@pytest.mark.parametrize("source", [RolloutISCallback, LateCallback])
def test_at_any_step(monkeypatch, tmp_path, source, health_first):
    def callbacks(*more):
        both = [RolloutISHealth(RULES), source()]
        return [*(both if health_first else both[::-1]), *more]

    keep = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    settings = {"callbacks": callbacks(keep), "enable_checkpointing": True}
    _, whole = run(monkeypatch, tmp_path / "whole", (), data=ResumableBatches(batches(*SHIFTS)), **settings)
    assert whole.begun == [(1, ["kl"]), (3, ["mean_low"]), (7, ["kl"])]
    for done in range(1, len(SHIFTS)):
        data = ResumableBatches(batches(*SHIFTS))
        checkpoint = tmp_path / "kept" / f"step={done}.ckpt"
        settings = {"callbacks": callbacks(), "ckpt_path": checkpoint}
        _, resumed = run(monkeypatch, tmp_path / str(done), (), data=data, **settings)
        assert resumed.begun == [event for event in whole.begun if event[0] >= done]
        assert resumed.ended == [text for text in whole.ended if int(text.rstrip(".").split()[-1]) >= done]


def test_a_checkpoint_loads_as_weights_only(monkeypatch, tmp_path):
    trainer, _ = run(monkeypatch, tmp_path, [OK, SICK])
    trainer.save_checkpoint(tmp_path / "1.ckpt", weights_only=False)
    saved = torch.load(tmp_path / "1.ckpt", weights_only=True)["callbacks"]
    state = saved[RolloutISHealth(RULES).state_key]
    assert state["episodes"]["kl"]["first"] == 1
