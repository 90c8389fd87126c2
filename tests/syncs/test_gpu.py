"""The same on a CUDA device, where torch itself says which operation waits."""

from contextlib import contextmanager

import pytest
import torch

from lightning_rollout_is import (
    RolloutISCallback,
    RolloutISConfig,
    RolloutISMetrics,
    aggregate_loss,
    importance_weights,
    ppo_clip_loss,
    token_log_probs,
)
from tests.trainer.exact import assert_points_follow_the_loss
from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import curves, fit

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
BATCHES = [rollout_batch(seed, rows=2 + seed % 3) for seed in range(8)]


@contextmanager
def no_waits():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_weights_statistics_and_losses(level, mode, packed):
    config = RolloutISConfig(
        1.001 if level == "geometric" else 2.0, rollout_is=True, rollout_is_level=level, rollout_is_mode=mode
    )
    metrics = RolloutISMetrics(config).cuda()
    tokens = [BATCHES[0][key].cuda() for key in ("old_log_prob", "rollout_log_prob", "response_mask")]
    boundaries = None
    if packed:
        rows, length = tokens[0].shape
        tokens = [tensor.flatten() for tensor in tokens]
        boundaries = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device="cuda")
    log_prob = tokens[0].clone().requires_grad_()
    advantages = torch.ones_like(tokens[0])
    for _ in range(2):  # once to load kernels
        with no_waits():
            weights = importance_weights(*tokens, cu_seqlens=boundaries, **config.weight_options)
            metrics.update(*tokens, boundaries, weights=weights)
            metrics.update(*tokens, boundaries)
            loss = ppo_clip_loss(log_prob, tokens[0], advantages, tokens[2], cu_seqlens=boundaries).token_loss
            aggregate_loss(loss * weights.weight, tokens[2], cu_seqlens=boundaries).backward()


@pytest.mark.plain
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler itself imports what torch has deprecated
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_one_compiled_kernel(level):
    upper = 1.001 if level == "geometric" else 2.0
    metrics = RolloutISMetrics({"rollout_is_threshold": upper, "rollout_is_level": level}, compile=True).cuda()
    tokens = [BATCHES[0][key].cuda() for key in ("old_log_prob", "rollout_log_prob", "response_mask")]
    metrics.weigh(*tokens)  # compiling reads what it likes
    with no_waits():
        metrics.weigh(*tokens)


def test_log_probs_of_tokens():
    logits = torch.randn(3, 4, 32, device="cuda", requires_grad=True)
    ids = torch.zeros(3, 4, dtype=torch.int64, device="cuda")
    for _ in range(2):
        with no_waits():
            token_log_probs(logits, ids).sum().backward()


class WatchedCallback(RolloutISCallback):
    """The first looks read, and so does the first point."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx < 5:
            return super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        with no_waits():
            return super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)


class WatchedPolicy(Policy):
    def weighted_loss(self, batch):
        with no_waits():
            return super().weighted_loss(batch)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_run_waits_for_nothing_and_writes_the_points_of_the_cpu(tmp_path, accumulate):
    settings = {"accumulate_grad_batches": accumulate}
    fit(WatchedPolicy(), BATCHES, tmp_path / "gpu", callbacks=[WatchedCallback()], accelerator="gpu", **settings)
    assert_points_follow_the_loss(tmp_path / "gpu", [BATCHES[i : i + accumulate] for i in range(0, 8, accumulate)])
    fit(Policy(), BATCHES, tmp_path / "cpu", **settings)
    gpu, cpu = curves(tmp_path / "gpu"), curves(tmp_path / "cpu")
    ours = [tag for tag in cpu if tag.startswith("mismatch/")]
    assert {tag: [step for step, _ in gpu[tag]] for tag in ours} == {
        tag: [step for step, _ in cpu[tag]] for tag in ours
    }
    for tag in ours:
        assert [value for _, value in gpu[tag]] == pytest.approx([value for _, value in cpu[tag]], rel=1e-6, abs=1e-7)
