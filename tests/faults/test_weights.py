"""Inputs on which other implementations gave wrong weights, at every level, mode and entry point."""

import math
from typing import Any

import pytest
import torch

from lightning_rollout_is import RolloutISConfig, importance_weights
from tests.faults.entry_points import ENTRIES, MEASURING, Policy
from tests.reference.batches import LAYOUTS, Batch, batch_of_log_ratios, lay_out, read_rows
from tests.reference.metric_values import metrics_of

LEVELS, MODES = ("token", "sequence", "geometric"), ("truncate", "mask")
HALVES = (torch.float16, torch.bfloat16)
# The first is what each entry point gives without the token that has no log-prob.
KNOWN = (torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.1, -1.2]]), torch.ones(1, 2))


def weights_of(batch: Batch, layout: str = "right", dtype: torch.dtype = torch.float64, **settings: Any) -> list[float]:
    tensors = lay_out(batch, layout, dtype)
    chosen = {"level": "token", "mode": "truncate", "upper": 2.0, "veto": None} | settings
    weight = importance_weights(*tensors[:3], cu_seqlens=tensors.cu_seqlens, **chosen).weight
    return [value for row in read_rows(weight, batch, layout) for value in row]


@pytest.mark.parametrize("missing", [math.nan, math.inf, -math.inf, -9999.0])
@pytest.mark.parametrize("name", MEASURING)
def test_missing_log_prob_leaves_every_number_defined(name: str, missing: float) -> None:
    tensors = torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[-1.1, missing, -1.2]]), torch.ones(1, 3)
    expected = ENTRIES[name](*KNOWN)
    for key, value in ENTRIES[name](*tensors).items():
        if key in ("weight", "loss"):
            value = value[:, [0, 2]]
        if key.endswith("missing_fraction"):
            assert value.item() == pytest.approx(1 / 3)
        elif "decile" not in key:  # where a missing token keeps its place
            torch.testing.assert_close(value, expected[key], rtol=1e-6, atol=1e-9, equal_nan=True, msg=key)


@pytest.mark.parametrize("missing", [math.nan, math.inf, -9999.0])
def test_missing_log_prob_leaves_the_gradient_finite(missing: float) -> None:
    policy = Policy(RolloutISConfig(2.0, rollout_is=True))
    log_prob = torch.tensor([[-1.0, -1.0, -1.0]], requires_grad=True)
    rollout, mask = torch.tensor([[-1.1, missing, -1.2]]), torch.ones(1, 3)
    policy.rollout_is_loss(-log_prob, log_prob, rollout, mask).sum().backward()
    assert log_prob.grad[0].tolist() == pytest.approx([-1.105171, 0.0, -1.221403], rel=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_geometric_mean_is_over_valid_tokens_alone(layout: str) -> None:
    batch = batch_of_log_ratios([[0.2, 0.4, 9.0, 9.0]], mask=[[1.0, 1.0, 0.0, 0.0]])
    weight = weights_of(batch, layout, level="geometric")
    assert weight == pytest.approx([1.349859, 1.349859, 0.0, 0.0], rel=1e-6)
    longer = Batch(*([*rows, [0.0] * 50] for rows in batch))
    assert weights_of(longer, layout, level="geometric")[:4] == pytest.approx(weight, rel=1e-14)


@pytest.mark.parametrize("level", LEVELS)
def test_tool_tokens_change_no_weight(level: str) -> None:
    old, rollout = [-1.0, -1.0, -9.0, -8.0, -1.0, -1.0], [-1.0, -1.0, 0.0, 0.0, -1.0, -1.0]
    batch = Batch([old], [rollout], [[1.0, 1.0, 0.0, 0.0, 1.0, 1.0]])
    for layout in LAYOUTS:
        assert weights_of(batch, layout, level=level, veto=1e-4) == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", LEVELS)
def test_veto_works_at_every_level_and_mode(level: str, mode: str, layout: str) -> None:
    batch = batch_of_log_ratios([[0.0] * 5, [9.5, 0.0, 0.0, 0.0, -9.5]])
    weight = weights_of(batch, layout, level=level, mode=mode, veto=1e-4)
    assert weight == [1.0] * 5 + [0.0] * 5
    without = weights_of(batch, layout, level=level, mode=mode, veto=None)
    assert sum(without[5:]) > 2.9


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", LEVELS)
def test_lower_threshold_works_in_mask_mode_alone(level: str, mode: str) -> None:
    batch = batch_of_log_ratios([[math.log(0.7)]])
    weight = weights_of(batch, level=level, mode=mode, lower=0.8)
    assert weight == pytest.approx([0.7 if mode == "truncate" else 0.0])


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("level", LEVELS)
def test_half_precision_never_overflows(level: str, dtype: torch.dtype) -> None:
    """exp(20) is inf in float16."""
    batch = batch_of_log_ratios([[25.0]], rollout=-26.0)
    assert weights_of(batch, dtype=dtype, level=level) == [2.0]
    assert weights_of(batch, dtype=dtype, level=level, mode="mask") == [0.0]
    computed = metrics_of([lay_out(batch, old_dtype=dtype)], level=level)
    for name in ("max", "mean", "seq_max"):
        assert computed[f"rollout_is_{name}"] == pytest.approx(math.exp(20.0))


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_is_widened_before_it_is_subtracted(dtype: torch.dtype) -> None:
    old, rollout = torch.tensor([[-1.0, -2.5]], dtype=dtype), torch.tensor([[-1.00390625, -2.50048828125]])
    for pair in ((old, rollout), (rollout, old)):
        weight = importance_weights(*pair, torch.ones(1, 2), upper=2.0).weight
        exact = (pair[0].double() - pair[1].double()).exp().tolist()
        assert weight.dtype == torch.float32
        assert weight[0].tolist() == pytest.approx(exact[0], rel=1e-7)
    far = importance_weights(old, torch.tensor([[-1.25, -2.0]], dtype=dtype), torch.ones(1, 2), upper=2.0).weight
    assert far.dtype == torch.float32
    assert far[0].tolist() == pytest.approx([math.exp(0.25), math.exp(-0.5)], rel=1e-6)
    coarse = importance_weights(
        torch.tensor([[-10.02]]).bfloat16(), torch.tensor([[-10.0]]).bfloat16(), torch.ones(1, 1), upper=2.0
    )
    assert coarse.weight == 1.0, "bfloat16 holds no -10.02"


def test_weight_of_rollout_time_stays_over_inner_steps() -> None:
    """Three steps on one rollout: the policy moves, the mismatch of the data does not."""
    policy = Policy(RolloutISConfig(2.0, rollout_is=True))
    log_prob = torch.nn.Parameter(torch.tensor([[-1.1]]))
    old, rollout, mask = torch.tensor([[-1.1]]), torch.tensor([[-1.0]]), torch.ones(1, 1)
    for _ in range(3):
        loss = policy.rollout_is_loss(-log_prob, old, rollout, mask)
        loss.sum().backward()
        assert log_prob.grad.item() == pytest.approx(-0.904837, rel=1e-6)
        with torch.no_grad():
            log_prob -= 0.2 * log_prob.grad
        log_prob.grad = None
    assert log_prob.item() > -0.7
    assert policy.rollout_is_metrics.compute()["mismatch/rollout_is_max"].item() == pytest.approx(0.904837, rel=1e-6)


def test_one_extreme_token_among_sound_ones() -> None:
    computed = metrics_of([lay_out(batch_of_log_ratios([[100.0, 0.0, -800.0, 0.0]], rollout=0.0))])
    assert all(math.isfinite(value) for value in computed.values())
    assert computed["mismatch_k3_kl"] == pytest.approx((485165174.4 + 799.0) / 4, rel=1e-9)
    assert computed["mismatch_kl"] == pytest.approx(175.0)
    assert computed["rollout_is_max"] == pytest.approx(math.exp(20.0))
    assert computed["rollout_is_eff_sample_size"] == pytest.approx(4.5**2 / (4 * 6.25))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES])
@pytest.mark.parametrize("level", LEVELS)
def test_missing_sentinel_survives_rounding(level: str, dtype: torch.dtype) -> None:
    """bfloat16 makes -9984 of a server's -9999."""
    batch = Batch([[-1.0, -1.0]], [[-9999.0, -1.0]], [[1.0, 1.0]])
    assert weights_of(batch, dtype=dtype, level=level) == [0.0, 1.0]
    tensors = lay_out(batch, old_dtype=dtype)
    widened = tensors._replace(old=tensors.old.float(), rollout=tensors.rollout.float())
    for given in (tensors, widened):
        computed = metrics_of([given], level=level)
        assert computed["rollout_is_missing_fraction"] == 0.5
        assert computed["mismatch_kl"] == 0.0
