"""Nothing stored, logged or returned as a statistic keeps a graph, even where the user's log-probs carry one."""

import gc
import weakref

import pytest
import torch
from lightning.pytorch import Callback

from lightning_rollout_is import RolloutISCallback, RolloutISConfig, RolloutISMetrics, importance_weights
from tests.trainer.policy import ALGORITHM, Policy, rollout_batch
from tests.trainer.runs import fit

BATCHES = [rollout_batch(seed) for seed in range(8)]
CONFIG = RolloutISConfig.from_mapping(ALGORITHM)


def tensors_with_a_graph():
    gc.collect()
    # Many objects of other packages do not like to be asked for their class.
    return [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor) and x.grad_fn is not None]


class OnPolicy(Policy):
    """Passes log-probs that carry the graph of the step, as a trainer with one update a rollout does."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.seen = []

    def weighted_loss(self, batch):
        old_log_prob = self.logits.log_softmax(0)[batch["token_ids"]]
        rollout_log_prob = old_log_prob + 0.1 * batch["rollout_log_prob"].cos()
        self.seen += [weakref.ref(old_log_prob), weakref.ref(rollout_log_prob)]
        inputs = {**batch, "old_log_prob": old_log_prob, "rollout_log_prob": rollout_log_prob}
        return super().weighted_loss(inputs)


class CountsGraphs(Callback):
    def __init__(self):
        self.alive = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.alive.append(len(tensors_with_a_graph()))


@pytest.mark.parametrize("settings", [{}, {"accumulate_grad_batches": 4}, {"manual": True}])
def test_no_graph_outlives_its_step(tmp_path, settings):
    before, count = len(tensors_with_a_graph()), CountsGraphs()
    module = OnPolicy(automatic=not settings.pop("manual", False))
    trainer = fit(module, BATCHES, tmp_path, callbacks=[RolloutISCallback(), count], **settings)
    assert count.alive == [before] * len(BATCHES)
    assert [reference() for reference in module.seen] == [None] * 2 * len(BATCHES)
    assert all(value.grad_fn is None for value in trainer.callback_metrics.values())
    assert not module.rollout_is_metrics.packed.requires_grad


def test_the_search_for_graphs_finds_one(tmp_path):
    class Keeps(OnPolicy):
        def training_step(self, batch, batch_idx):
            self.kept = self.loss_of(batch)
            return self.kept

    count = CountsGraphs()
    fit(Keeps(), BATCHES, tmp_path, callbacks=[RolloutISCallback(), count])
    assert count.alive[1] > count.alive[0]


def with_graph(batch):
    old, rollout = (batch[name].clone().requires_grad_() * 1 for name in ("old_log_prob", "rollout_log_prob"))
    return old, rollout, batch["response_mask"]


@pytest.mark.parametrize("call", ["update", "forward"])
def test_a_metric_lets_its_inputs_go(call):
    metrics = RolloutISMetrics(CONFIG)
    inputs = with_graph(BATCHES[0])
    batch_values = getattr(metrics, call)(*inputs)
    seen = [weakref.ref(tensor) for tensor in inputs[:2]]
    del inputs
    gc.collect()
    assert [reference() for reference in seen] == [None, None]
    for value in [*metrics.compute().values(), metrics.packed, *(batch_values or {}).values()]:
        assert not value.requires_grad


def test_weights_carry_no_graph():
    result = importance_weights(*with_graph(BATCHES[0]), **CONFIG.weight_options)
    tensors = [value for value in result if isinstance(value, torch.Tensor)]
    assert tensors
    assert not any(value.requires_grad for value in tensors)
    assert not OnPolicy().rollout_is_weights(*with_graph(BATCHES[0])).requires_grad
