"""500 steps of a real Trainer take no more memory than the first ones."""

import gc
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback

from lightning_rollout_is import RolloutISCallback
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import curves, fit

STEPS, EVERY, WARM = 500, 50, 5
PAGE = 4096
STATM = Path("/proc/self/statm")
BATCHES = [rollout_batch(seed, rows=8, length=256) for seed in range(50)]


class Samples(Callback):
    """What is alive at every 50th step, after a collection."""

    def __init__(self):
        self.tensors, self.blocks, self.resident, self.metric = [], [], [], []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step % EVERY:
            return
        gc.collect()
        self.tensors.append(sum(issubclass(type(x), torch.Tensor) for x in gc.get_objects()))
        self.blocks.append(sys.getallocatedblocks())
        self.resident.append(int(STATM.read_text().split()[1]) * PAGE if STATM.exists() else 0)
        self.metric.append(sum(state.nbytes for state in pl_module.rollout_is_metrics.metric_state.values()))


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder, samples = tmp_path_factory.mktemp("flat"), Samples()
    callbacks = [RolloutISCallback(), samples]
    fit(Policy(), BATCHES, folder, max_epochs=STEPS // len(BATCHES), callbacks=callbacks)
    assert len(curves(folder)["mismatch/mismatch_kl"]) == STEPS
    assert len(samples.tensors) == STEPS // EVERY
    return samples


def test_the_state_of_the_metric_has_one_size(samples):
    assert len(set(samples.metric)) == 1


def test_the_number_of_tensors_does_not_grow(samples):
    assert len(set(samples.tensors[WARM:])) == 1


def test_the_blocks_of_python_do_not_grow(samples):
    # Less than one a step: pools of the interpreter still fill up a little, and whatever is kept of a step is a block.
    steps = EVERY * (len(samples.blocks) - 1 - WARM)
    assert samples.blocks[-1] - samples.blocks[WARM] < steps


@pytest.mark.skipif(not STATM.exists(), reason="the resident set is read from Linux's /proc")
def test_the_resident_memory_does_not_grow(samples):
    # Each minimum is of 200 steps, so that the allocator's own ups and downs fall out; one tensor of log-probs kept of
    # each step would be 1.6 MB.
    assert min(samples.resident[WARM:]) - min(samples.resident[1:WARM]) < 2**20
