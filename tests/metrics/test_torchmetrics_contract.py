"""What torchmetrics and Lightning do to a metric: copy, pickle, cast, reset, save."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lightning_rollout_is import EffectiveSampleSize, RolloutISConfig, RolloutISMetrics
from tests.reference.batches import Tensors, batch_of_log_ratios, batch_of_ratios, lay_out
from tests.reference.metric_values import TOKEN, config_of, update, values

FIRST = lay_out(batch_of_ratios([[0.4, 1.0, 3.0, 1.5], [1.1, 0.9]]))
SECOND = lay_out(batch_of_log_ratios([[-11.0, 0.25], [0.75]]))


def metric_after(*batches: Tensors, **settings: Any) -> RolloutISMetrics:
    metric = RolloutISMetrics(config_of(TOKEN | settings))
    for tensors in batches:
        update(metric, tensors)
    return metric


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, RolloutISMetrics.clone, lambda metric: pickle.loads(pickle.dumps(metric))],
    ids=["copy", "deepcopy", "clone", "pickle"],
)
def test_copy_goes_on_by_itself(copied: Callable[[RolloutISMetrics], RolloutISMetrics]) -> None:
    metric = metric_after(FIRST)
    before = values(metric)
    twin = copied(metric)
    assert values(twin) == before
    update(twin, SECOND)
    assert values(twin) == values(metric_after(FIRST, SECOND))
    assert values(metric) == before


def test_reset_forgets() -> None:
    metric = metric_after(FIRST)
    metric.compute()
    metric.reset()
    update(metric, SECOND)
    assert values(metric) == values(metric_after(SECOND))


def test_compute_between_updates() -> None:
    metric = metric_after(FIRST)
    assert values(metric) == values(metric_after(FIRST))
    assert values(metric) == values(metric_after(FIRST))
    update(metric, SECOND)
    assert values(metric) == values(metric_after(FIRST, SECOND))


def test_forward_returns_its_batch_and_keeps_all() -> None:
    metric = RolloutISMetrics(config_of(TOKEN))
    for tensors in (FIRST, SECOND):
        computed = {name.removeprefix("mismatch/"): value.item() for name, value in metric(*tensors[:3]).items()}
        assert computed == values(metric_after(tensors))
    assert values(metric) == values(metric_after(FIRST, SECOND))


def test_forward_of_packed_tokens() -> None:
    packed = lay_out(batch_of_ratios([[0.4, 1.0, 3.0, 1.5], [1.1, 0.9]]), "packed")
    metric = RolloutISMetrics(config_of(TOKEN | {"level": "sequence"}))
    computed = metric(*packed[:3], cu_seqlens=packed.cu_seqlens)
    assert (
        computed["mismatch/rollout_is_mean"].item() == values(metric_after(FIRST, level="sequence"))["rollout_is_mean"]
    )


@pytest.mark.parametrize("cast", ["bfloat16", "half", "float", "double", "to", "set_dtype"])
def test_state_stays_float64_in_a_module_of_low_precision(cast: str) -> None:
    """A bfloat16 sum of ones stops at 256."""
    module = nn.Module()
    module.metric = metric_after(FIRST)
    if cast == "to":
        module.to(torch.bfloat16)
    elif cast == "set_dtype":
        module.metric.set_dtype(torch.bfloat16)
    else:
        getattr(module, cast)()
    many = lay_out(batch_of_log_ratios([[0.0] * 1000]), old_dtype=torch.bfloat16)
    update(module.metric, many)
    assert all(state.dtype == torch.float64 for state in module.metric.metric_state.values())
    assert values(module.metric) == pytest.approx(values(metric_after(FIRST, many)), rel=1e-15)
    module.metric.reset()
    assert all(state.dtype == torch.float64 for state in module.metric.metric_state.values())


def test_nothing_is_saved_by_default() -> None:
    module = nn.Module()
    module.metric = metric_after(FIRST)
    module.single = EffectiveSampleSize(config_of(TOKEN))
    assert module.state_dict() == {}
    module.load_state_dict({})
    assert list(module.parameters()) == []


def test_saved_state_restores_when_asked_for() -> None:
    metric = metric_after(FIRST)
    metric.persistent(True)
    restored = RolloutISMetrics(config_of(TOKEN))
    restored.persistent(True)
    restored.load_state_dict(metric.state_dict())
    update(restored, SECOND)
    assert values(restored) == values(metric_after(FIRST, SECOND))


def test_nothing_requires_grad() -> None:
    old, rollout, mask, _ = FIRST
    old = old.clone().requires_grad_()
    metric = RolloutISMetrics(config_of(TOKEN))
    results = [metric(old, rollout, mask), metric.compute()]
    assert not any(value.requires_grad for result in results for value in result.values())
    assert not any(state.requires_grad for state in metric.metric_state.values())


@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_batch_without_a_valid_token_leaves_the_rest_alone(level: str, mode: str) -> None:
    empty = lay_out(batch_of_log_ratios([[9.0, -9.0]] * 2, mask=[[0.0, 0.0]] * 2))
    metric = metric_after(empty, level=level, mode=mode)
    assert all(value != value for value in values(metric).values()), "NaN, every one"
    update(metric, FIRST)
    update(metric, empty)
    assert values(metric) == values(metric_after(FIRST, level=level, mode=mode))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_batch_without_a_row_or_column(shape: tuple[int, int]) -> None:
    nothing = Tensors(torch.empty(shape), torch.empty(shape), torch.empty(shape), None)
    assert values(metric_after(FIRST, nothing)) == values(metric_after(FIRST))


def test_prefix() -> None:
    metric = RolloutISMetrics(config_of(TOKEN), prefix="train/")
    update(metric, FIRST)
    assert all(name.startswith("train/") for name in metric.compute())


def test_off_has_no_metrics() -> None:
    with pytest.raises(ValueError, match="rollout_is_threshold"):
        RolloutISMetrics(RolloutISConfig())
