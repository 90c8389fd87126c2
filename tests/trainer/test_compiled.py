"""``torch.compile`` of the module: one graph for loss, weights and statistics, and the same points."""

import pytest
import torch
from torch._dynamo.utils import counters

from tests.trainer.exact import assert_curves_are_exact
from tests.trainer.policy import Policy, PolicyWithTwoOptimizers, rollout_batch
from tests.trainer.runs import fit

pytestmark = pytest.mark.plain
BATCHES = [rollout_batch(seed) for seed in range(8)]


class SilentPolicy(Policy):
    def training_step(self, batch, batch_idx):
        return self.weighted_loss(batch)  # Dynamo cannot trace `self.log` of lightning 2.6


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_training_step_records_the_same(tmp_path, backend):
    fit(torch.compile(SilentPolicy(), backend=backend, fullgraph=True), BATCHES, tmp_path, accumulate_grad_batches=2)
    assert_curves_are_exact(tmp_path, range(4), [BATCHES[i : i + 2] for i in range(0, 8, 2)])
    # The first one or two for new states; then every batch and window runs what is compiled already.
    assert 1 <= counters["stats"]["unique_graphs"] <= 2


def test_a_compiled_forward_inside_a_manual_step(tmp_path):
    class CompiledLoss(PolicyWithTwoOptimizers):
        def __init__(self):
            super().__init__(automatic=False)
            self.weighted_loss = torch.compile(super().weighted_loss, backend="aot_eager", fullgraph=True)

    fit(CompiledLoss(), BATCHES, tmp_path)
    assert_curves_are_exact(tmp_path, range(8), [[batch] for batch in BATCHES])
