"""A loop with neither Lightning nor a mixin: functions for the weights, a metric for the statistics."""

import pytest
import torch

from lightning_rollout_is import (
    RolloutISMetrics,
    RolloutISMixin,
    compute_rollout_importance_weights,
    importance_weights,
)
from tests.trainer.exact import CONFIG
from tests.trainer.policy import ALGORITHM, VOCABULARY, Policy, rollout_batch
from tests.trainer.runs import expected

BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(6)]
WINDOWS = [BATCHES[:2], BATCHES[2:4], BATCHES[4:6]]


def inputs_of(batch):
    return [batch[name] for name in ("old_log_prob", "rollout_log_prob", "response_mask")]


def assert_exact(values, window):
    for name, value in expected(window, CONFIG).items():
        assert values[f"mismatch/{name}"].item() == pytest.approx(value, rel=2e-6, abs=1e-6), name


def train(weights_and_record, read):
    """Two micro-batches a step; returns the parameter at the end."""
    logits = torch.nn.Parameter(torch.zeros(VOCABULARY))
    optimizer = torch.optim.SGD([logits], lr=0.1)
    for window in WINDOWS:
        for batch in window:
            log_prob = logits.log_softmax(0)[batch["token_ids"]]
            mask = batch["response_mask"]
            (-(log_prob * weights_and_record(*inputs_of(batch))) * mask).sum().div(mask.sum() * 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        read(window)
    return logits.detach()


def by_hand(*inputs):
    """What the reference's signature returns."""
    return compute_rollout_importance_weights(*inputs, rollout_is_mode="mask", rollout_is_threshold=2.0)[0]


def test_functions_and_metric_alone():
    metrics = RolloutISMetrics(CONFIG, details=True)

    def weights(*inputs):
        result = importance_weights(*inputs, **CONFIG.weight_options)
        metrics.update(*inputs, weights=result)
        return result.weight

    def read(window):
        assert_exact(metrics.compute(), window)
        metrics.reset()

    assert torch.allclose(train(weights, read), train(by_hand, lambda window: None))


def test_the_mixin_on_a_torch_module():
    class Head(RolloutISMixin, torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.configure_rollout_is(ALGORITHM)

    head = Head()

    def read(window):
        assert_exact(head.rollout_is_metrics.compute(), window)
        head.rollout_is_metrics.reset()

    assert torch.allclose(train(head.rollout_is_weights, read), train(by_hand, lambda window: None))


def test_a_lightning_module_without_a_trainer():
    module = Policy()
    for window in WINDOWS:
        for batch in window:
            module.weighted_loss(batch).backward()
        assert_exact(module.rollout_is_metrics.compute(), window)
        module.rollout_is_metrics.reset()
    assert module.logits.grad.abs().sum() > 0
