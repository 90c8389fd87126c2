"""The mixin under Fabric: a loop of the user's own, no Trainer and no callback."""

import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.loggers import TensorBoardLogger

from tests.trainer.exact import CONFIG, assert_curves_are_exact
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import curves, expected

BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(6)]


def train(fabric, module, optimizer, accumulate):
    for position, batch in enumerate(BATCHES):
        fabric.backward(module.training_step(batch, position) / accumulate)
        if (position + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            values = module.rollout_is_metrics.compute()
            defined = {name: value for name, value in values.items() if value.isfinite()}
            fabric.log_dict(defined, step=position // accumulate)
            module.rollout_is_metrics.reset()
    fabric.logger.save()


def set_up(folder, **settings):
    fabric = Fabric(accelerator="cpu", devices=1, loggers=TensorBoardLogger(folder, name="", version=""), **settings)
    module = Policy()
    return fabric, *fabric.setup(module, module.configure_optimizers())


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed", "bf16-true", "16-true"])
def test_every_precision_gives_the_exact_statistics(tmp_path, precision):
    fabric, module, optimizer = set_up(tmp_path, precision=precision)
    train(fabric, module, optimizer, accumulate=2)
    assert module.rollout_is_metrics.packed.dtype == torch.float64
    assert_curves_are_exact(tmp_path, range(3), [BATCHES[i : i + 2] for i in (0, 2, 4)])
    assert module.logits.abs().sum() > 0


def test_methods_of_the_mixin_are_called_from_outside_the_module(tmp_path):
    _, module, _ = set_up(tmp_path)
    inputs = [BATCHES[0][name] for name in ("old_log_prob", "rollout_log_prob", "response_mask")]
    weights = module.rollout_is_weights(*inputs)
    loss = module.rollout_is_loss(torch.ones_like(inputs[0]), *inputs)
    assert torch.equal(loss, weights)
    twice = expected(BATCHES[:1] * 2, CONFIG)
    found = module.rollout_is_metrics.compute()
    for name, value in twice.items():
        assert found[f"mismatch/{name}"].item() == pytest.approx(value, rel=2e-6, abs=1e-6), name


def test_a_checkpoint_of_fabric_holds_the_weights_alone(tmp_path):
    fabric, module, optimizer = set_up(tmp_path)
    train(fabric, module, optimizer, accumulate=1)
    fabric.save(tmp_path / "fabric.ckpt", {"module": module, "optimizer": optimizer})
    assert list(torch.load(tmp_path / "fabric.ckpt", weights_only=True)["module"]) == ["logits"]
    fabric, again, optimizer = set_up(tmp_path / "again")
    fabric.load(tmp_path / "fabric.ckpt", {"module": again, "optimizer": optimizer})
    assert torch.equal(again.logits, module.logits)
    train(fabric, again, optimizer, accumulate=1)
    assert len(curves(tmp_path / "again")["mismatch/mismatch_kl"]) == 6
