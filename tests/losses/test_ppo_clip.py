import math

import pytest
import torch
from torch import Tensor

from lightning_rollout_is.losses import ppo_clip_loss
from tests.losses import plain

SETTINGS = (
    {},
    {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28},
    {"clip_ratio_low": 0.0, "clip_ratio_high": 0.0},
    {"clip_ratio_low": 1.0, "clip_ratio_high": 5.0, "clip_ratio_c": 3.0},
    {"clip_ratio_c": 1.5},
)
NAMES = {"clip_ratio_low": "low", "clip_ratio_high": "high", "clip_ratio_c": "c"}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_values_and_gradient_are_the_formula(settings: dict[str, float]) -> None:
    log_ratio, advantage = torch.meshgrid(
        torch.tensor([-25.0, -3.0, -0.3, -0.1, 0.0, 0.1, 0.3, 1.0, 3.0, 25.0], dtype=torch.float64),
        torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], dtype=torch.float64),
        indexing="ij",
    )
    old, mask = plain.random_like(log_ratio), torch.ones_like(log_ratio)

    def formula(step: float) -> Tensor:
        named = {NAMES[key]: value for key, value in settings.items()}
        pairs = zip(log_ratio.flatten().tolist(), advantage.flatten().tolist(), strict=True)
        values = [plain.ppo(log + step, a, **named) for log, a in pairs]
        return torch.tensor(values, dtype=torch.float64).view(log_ratio.shape)

    def ours(log_prob: Tensor) -> Tensor:
        return ppo_clip_loss(log_prob, old, advantage, mask, **settings).token_loss

    torch.testing.assert_close(ours(old + log_ratio), formula(0.0))
    if settings.get("clip_ratio_high") == 0.0:
        return  # the formula has a kink at ratio 1, where finite differences are not its derivative
    slope = (formula(1e-6) - formula(-1e-6)) / 2e-6
    torch.testing.assert_close(plain.gradient(lambda z: ours(z).sum(), old + log_ratio), slope, rtol=1e-6, atol=1e-6)


def test_flags_say_which_clip_decided_and_there_is_no_gradient_there() -> None:
    ratio = torch.tensor([[1.5, 0.5, 1.5, 0.5, 5.0, 1.0]])
    advantages = torch.tensor([[1.0, 1.0, -1.0, -1.0, -1.0, 1.0]])
    log_prob = ratio.log().requires_grad_()
    loss = ppo_clip_loss(log_prob, torch.zeros(1, 6), advantages, torch.ones(1, 6), clip_ratio_c=3.0)
    torch.testing.assert_close(loss.token_loss, torch.tensor([[-1.2, -0.5, 1.5, 0.8, 3.0, -1.0]]))
    assert loss.clipped.tolist() == [[True, False, False, True, False, False]]
    assert loss.dual_clipped.tolist() == [[False, False, False, False, True, False]]
    loss.token_loss.sum().backward()
    torch.testing.assert_close(log_prob.grad, torch.tensor([[0.0, -0.5, 1.5, 0.0, 0.0, -1.0]]))


def test_without_dual_clip_the_loss_of_a_negative_advantage_grows_with_the_ratio() -> None:
    loss = ppo_clip_loss(torch.tensor([[math.log(50.0)]]), torch.zeros(1, 1), -torch.ones(1), torch.ones(1, 1))
    torch.testing.assert_close(loss.token_loss, torch.tensor([[50.0]]))
    assert not loss.dual_clipped.any()


def test_the_old_policy_and_the_advantages_get_no_gradient() -> None:
    log_prob, old, advantages = (torch.zeros(1, 2, requires_grad=True) for _ in range(3))
    ppo_clip_loss(log_prob, old, advantages + 1.0, torch.ones(1, 2)).token_loss.sum().backward()
    assert old.grad is None
    assert advantages.grad is None
    torch.testing.assert_close(log_prob.grad, -torch.ones(1, 2))


def test_passing_the_same_tensor_twice_is_the_on_policy_gradient() -> None:
    log_prob = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    ppo_clip_loss(log_prob, log_prob, torch.tensor([3.0]), torch.ones(1, 2)).token_loss.sum().backward()
    torch.testing.assert_close(log_prob.grad, torch.full((1, 2), -3.0))


@pytest.mark.parametrize("old_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("advantage_dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_is_computed_in_float32(old_dtype: torch.dtype, advantage_dtype: torch.dtype) -> None:
    # Their difference is 9.2421875, which bfloat16 rounds to 9.25.
    log_prob, old = torch.tensor([[-1.0078125]], dtype=torch.bfloat16), torch.tensor([[-10.25]], dtype=old_dtype)
    advantages = torch.tensor([-0.375], dtype=advantage_dtype)
    loss = ppo_clip_loss(log_prob, old, advantages, torch.ones(1, 1)).token_loss
    torch.testing.assert_close(loss, torch.tensor([[0.375 * math.exp(9.2421875)]]), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32])
def test_any_mask_dtype(dtype: torch.dtype) -> None:
    mask = plain.ragged_mask()
    log_prob, old, advantages = (plain.random_like(mask, seed) for seed in range(3))
    expected = ppo_clip_loss(log_prob, old, advantages, mask)
    for ours, wanted in zip(ppo_clip_loss(log_prob, old, advantages, mask.to(dtype)), expected, strict=True):
        assert torch.equal(ours, wanted)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip_ratio_low": -0.1}, r"clip_ratio_low = -0.1 is not allowed; it must be in \[0, 1\]"),
        ({"clip_ratio_low": 1.5}, "clip_ratio_low = 1.5"),
        ({"clip_ratio_low": math.nan}, "clip_ratio_low = nan"),
        ({"clip_ratio_high": -0.1}, "clip_ratio_high = -0.1 is not allowed; it must be finite and at least 0"),
        ({"clip_ratio_high": math.inf}, "clip_ratio_high = inf"),
        ({"clip_ratio_c": 1.0}, "clip_ratio_c = 1.0 is not allowed; it must be finite and above 1, or None"),
        ({"clip_ratio_c": math.nan}, "clip_ratio_c = nan"),
    ],
    ids=str,
)
def test_clip_ratios_are_checked(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ppo_clip_loss(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1), torch.ones(1, 2), **settings)


@pytest.mark.plain
@pytest.mark.parametrize("shape", [(3, 1), (1, 4), (4,), (1,), ()], ids=str)
def test_advantages_never_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=r"advantages have shape .*; allowed: \(3,\), one a sequence, or \(3, 4\), one"
    ):
        ppo_clip_loss(torch.zeros(3, 4), torch.zeros(3, 4), torch.ones(shape), torch.ones(3, 4))


@pytest.mark.plain
def test_tensors_are_checked() -> None:
    two, mask, advantages = torch.zeros(2, 3), torch.ones(2, 3), torch.ones(2)
    with pytest.raises(ValueError, match=r"old_log_prob is torch.float32 \(2, 1\)"):
        ppo_clip_loss(two, torch.zeros(2, 1), advantages, mask)
    with pytest.raises(ValueError, match=r"log_prob is torch.int64 \(2, 3\); give floating point"):
        ppo_clip_loss(two.long(), two, advantages, mask)
    with pytest.raises(ValueError, match=r"advantages have dtype torch\.int64"):
        ppo_clip_loss(two, two, advantages.long(), mask)
    with pytest.raises(ValueError, match="without cu_seqlens"):
        ppo_clip_loss(two[0], two[0], two[0], mask[0])


@pytest.mark.plain
def test_compiles_to_one_graph() -> None:
    mask = plain.ragged_mask()
    log_prob, old, advantages = (plain.random_like(mask, seed) for seed in range(3))
    compiled = torch.compile(ppo_clip_loss, fullgraph=True, backend="aot_eager")
    expected = ppo_clip_loss(log_prob, old, advantages, mask, clip_ratio_c=3.0)
    torch.testing.assert_close(compiled(log_prob, old, advantages, mask, clip_ratio_c=3.0), expected)
