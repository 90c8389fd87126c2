"""Sound tensors in unusual forms at every public entry point: the same numbers, and the tensors stay as they were."""

import pytest
import torch
from torch import Tensor

from lightning_rollout_is import RolloutISMetrics, importance_weights, ppo_clip_loss
from tests.faults.entry_points import ENTRIES, MEASURING, assert_same, batch, config_of

TENSORS = batch()


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


def strided(x: Tensor) -> Tensor:
    return torch.stack([x, torch.full_like(x, torch.nan)], -1)[..., 0]


def offset(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (3, 2, 1, 0), value=torch.nan)[1:, 3:-2]


@pytest.mark.parametrize("form", [transposed, strided, offset])
@pytest.mark.parametrize("name", ENTRIES)
def test_views(name: str, form: object) -> None:
    views = [form(x) for x in TENSORS]
    assert not all(x.is_contiguous() for x in views)
    assert_same(ENTRIES[name](*views), ENTRIES[name](*TENSORS))


@pytest.mark.parametrize("name", ENTRIES)
def test_expanded_rows(name: str) -> None:
    expanded = [x[:1].expand(4, -1) for x in TENSORS]
    assert_same(ENTRIES[name](*expanded), ENTRIES[name](*[x.clone() for x in expanded]))


@pytest.mark.parametrize("name", ENTRIES)
def test_inference_mode(name: str) -> None:
    with torch.inference_mode():
        tensors = [x.clone() for x in TENSORS]
        inside = ENTRIES[name](*tensors)
    assert tensors[0].is_inference()
    expected = ENTRIES[name](*TENSORS)
    assert_same(inside, expected)
    assert_same(ENTRIES[name](*tensors), expected)


def test_inference_mode_and_training_may_alternate() -> None:
    metric, plain = (RolloutISMetrics(config_of("token", "mask")) for _ in range(2))
    for _ in range(2):
        with torch.inference_mode():
            metric.reset()
            metric.update(*TENSORS)
        metric.update(*TENSORS)
        metric.double()
        plain.update(*TENSORS)
    assert_same(metric.compute(), plain.compute())
    metric.reset()
    metric.update(*TENSORS)
    assert metric.compute()["mismatch/rollout_is_mean"].isfinite()


@pytest.mark.parametrize("name", MEASURING)
def test_nothing_measured_has_a_gradient(name: str) -> None:
    leaves = [TENSORS[0].clone().requires_grad_(), TENSORS[1].clone().requires_grad_(), TENSORS[2]]
    for key, value in ENTRIES[name](*leaves).items():
        assert not value.requires_grad, key


@pytest.mark.parametrize("name", ENTRIES)
def test_inputs_are_left_as_they_were(name: str) -> None:
    copies, versions = [x.clone() for x in TENSORS], [x._version for x in TENSORS]
    ENTRIES[name](*TENSORS)
    assert [x._version for x in TENSORS] == versions
    assert all(torch.equal(x, copy) for x, copy in zip(TENSORS, copies, strict=True))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16,
                                   torch.bfloat16, torch.float64])  # fmt: skip
@pytest.mark.parametrize("name", ENTRIES)
def test_mask_of_any_dtype(name: str, dtype: torch.dtype) -> None:
    assert_same(ENTRIES[name](*TENSORS[:2], TENSORS[2].to(dtype)), ENTRIES[name](*TENSORS))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", ENTRIES)
def test_no_row_or_no_column(name: str, shape: tuple[int, int]) -> None:
    for key, value in ENTRIES[name](*[torch.zeros(shape) for _ in range(3)]).items():
        undefined = not value.numel() or value.isnan().all()
        assert undefined or value == 0.0, key


@pytest.mark.filterwarnings("ignore:old_log_prob and rollout_log_prob are the same tensor:UserWarning")
@pytest.mark.parametrize("name", MEASURING)
def test_the_same_tensor_twice_is_no_mismatch(name: str) -> None:
    results = ENTRIES[name](TENSORS[0], TENSORS[0], TENSORS[2])
    for key in results.keys() & {"weight", "loss"}:
        assert torch.equal(results[key], TENSORS[2])
    for key in results.keys() & {"mismatch/mismatch_kl", "mismatch/mismatch_k3_kl", "mismatch/rollout_is_std"}:
        assert results[key] == 0.0


@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_the_second_tensor_and_the_mask_follow_the_first_to_its_device(level: str, mode: str) -> None:
    """The meta device stands for an accelerator: a result on it was computed there."""
    old, rollout, mask = TENSORS
    weight = importance_weights(old.to("meta"), rollout, mask, **config_of(level, mode).weight_options).weight
    assert (weight.device.type, weight.shape) == ("meta", old.shape)
    metric = RolloutISMetrics(config_of(level, mode)).to("meta")
    metric.update(old.to("meta"), rollout, mask)
    assert metric.packed.device.type == "meta"


def test_boundaries_follow_the_tokens_to_their_device() -> None:
    old, rollout, mask = (x.flatten() for x in TENSORS)
    boundaries = torch.tensor([0, 16, 48])
    weight = importance_weights(old.to("meta"), rollout, mask, upper=2.0, cu_seqlens=boundaries).weight
    assert weight.device.type == "meta"


@pytest.mark.plain
def test_a_loss_on_two_devices_names_them() -> None:
    old, rollout, mask = TENSORS
    with pytest.raises(ValueError, match="log_prob is on meta and response_mask on cpu"):
        ppo_clip_loss(old.to("meta"), rollout, torch.ones(3), mask)
