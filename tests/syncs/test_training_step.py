"""Nothing that runs in a training step reads the device or copies to it: weights, statistics, losses, log-probs."""

import lightning
import pytest
import torch

from lightning_rollout_is import (
    RolloutISConfig,
    RolloutISMetrics,
    RolloutISMixin,
    aggregate_loss,
    grpo_advantages,
    importance_weights,
    ppo_clip_loss,
    reinforce_loss,
    token_log_probs,
)
from lightning_rollout_is import metrics as single
from lightning_rollout_is.functional import alignment
from lightning_rollout_is.losses.aggregation import AGGREGATION_MODES
from tests.syncs.watch import DEVICE, batch, no_waits

LEVELS, MODES = ("token", "sequence", "geometric"), ("truncate", "mask")
MASKS = (torch.bool, torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
LAYOUTS = pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
SINGLE = [getattr(single, name) for name in single.__all__ if name != "RolloutISMetrics"]


def config_of(level="token", mode="mask", applied=True):
    upper = 1.001 if level == "geometric" else 2.0
    return RolloutISConfig(upper, rollout_is=applied, rollout_is_level=level, rollout_is_mode=mode)


class Policy(RolloutISMixin, lightning.LightningModule):
    def __init__(self, config):
        super().__init__()
        self.configure_rollout_is(config)
        self.to(DEVICE)


@LAYOUTS
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", LEVELS)
def test_weights_and_update(level, mode, packed):
    config = config_of(level, mode)
    metrics = RolloutISMetrics(config).to(DEVICE)
    for mask_dtype in MASKS:
        *tokens, cu_seqlens = batch(mask_dtype=mask_dtype, packed=packed)
        with no_waits():
            weights = importance_weights(*tokens, cu_seqlens=cu_seqlens, **config.weight_options)
            metrics.update(*tokens, cu_seqlens, weights=weights)
            metrics.update(*tokens, cu_seqlens)
            assert metrics.weigh(*tokens, cu_seqlens).is_meta
        assert metrics.packed.is_meta


@LAYOUTS
@pytest.mark.parametrize("level", LEVELS)
def test_details_and_groups(level, packed):
    metrics = RolloutISMetrics(config_of(level), details=True, groups=["math", "code"]).to(DEVICE)
    *tokens, cu_seqlens = batch(packed=packed)
    sequences = importance_weights(*tokens, upper=2.0, cu_seqlens=cu_seqlens).vetoed
    for like in (sequences, tokens[0]):
        groups = torch.zeros_like(like, dtype=torch.int64)
        with no_waits():
            metrics.update(*tokens, cu_seqlens, groups)
            assert metrics.weigh(*tokens, cu_seqlens, groups).is_meta
    assert metrics.packed.is_meta


@LAYOUTS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_log_probs_of_any_dtype(dtype, packed):
    *tokens, cu_seqlens = batch(dtype=dtype, packed=packed)
    metrics = RolloutISMetrics(config_of()).to(DEVICE)
    with no_waits():
        metrics.update(*tokens, cu_seqlens)
        alignment(*tokens, cu_seqlens=cu_seqlens)


def test_values_of_all_ranks_are_made_without_a_wait():
    metrics = RolloutISMetrics(config_of(), details=True, groups=["math"]).to(DEVICE)
    with no_waits():
        metrics.update(*batch())
        metrics.named(metrics.merged())
        metrics.compute()
        metrics.reset()
        metrics.update(*batch(packed=True))
        metrics.reset_statistics()


@LAYOUTS
@pytest.mark.parametrize("metric", SINGLE, ids=lambda metric: metric.__name__)
def test_each_single_metric(metric, packed):
    one = metric(config_of()).to(DEVICE)
    with no_waits():
        one(*batch(packed=packed))
        one.compute()


@LAYOUTS
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", LEVELS)
def test_a_step_of_the_mixin(level, mode, applied, packed):
    policy = Policy(config_of(level, mode, applied))
    *tokens, cu_seqlens = batch(packed=packed)
    log_prob = torch.empty_like(tokens[0], requires_grad=True)
    for _ in range(6):  # the first batches are looked at more closely
        with no_waits():
            weighted = policy.rollout_is_loss(-log_prob, *tokens, cu_seqlens)
            aggregate_loss(weighted, tokens[2], cu_seqlens=cu_seqlens).backward()
            policy.rollout_is_weights(*tokens, cu_seqlens)


@LAYOUTS
@pytest.mark.parametrize("aggregation", AGGREGATION_MODES)
def test_losses(aggregation, packed):
    old, _, mask, cu_seqlens = batch(packed=packed)
    log_prob = torch.empty_like(old, requires_grad=True)
    sequences, share = torch.empty(3, device=DEVICE), torch.empty((), device=DEVICE)
    with no_waits():
        clipped = ppo_clip_loss(log_prob, old, sequences, mask, clip_ratio_c=3.0, cu_seqlens=cu_seqlens)
        reinforced = reinforce_loss(log_prob, old, mask, cu_seqlens=cu_seqlens)
        token_loss = clipped.token_loss + reinforced
        sum(
            aggregate_loss(token_loss, mask, aggregation, cu_seqlens=cu_seqlens, denominator=denominator)
            for denominator in (None, 7, share)
        ).backward()


@pytest.mark.parametrize("norm_by_std", [True, False])
def test_grpo_advantages(norm_by_std):
    rewards, groups = torch.empty(6, device=DEVICE), torch.empty(6, dtype=torch.int64, device=DEVICE)
    with no_waits():
        grpo_advantages(rewards, groups, norm_by_std=norm_by_std)


@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(3, 4), (12,)])
def test_log_probs_of_tokens(shape, dtype, ids_dtype):
    logits = torch.empty(*shape, 32, dtype=dtype, device=DEVICE, requires_grad=True)
    ids = torch.empty(shape, dtype=ids_dtype, device=DEVICE)
    with no_waits():
        token_log_probs(logits, ids, temperature=0.7).sum().backward()
