"""One graph without a break, and the numbers of eager mode."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_rollout_is import RolloutISMetrics
from lightning_rollout_is.functional import importance_weights
from tests.reference.batches import Batch, Tensors, lay_out
from tests.reference.metric_values import TOKEN, config_of

# The compiler itself imports what torch has deprecated.
pytestmark = [pytest.mark.plain, pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()


def random_tensors(rows: int, length: int, layout: str) -> Tensors:
    generator = torch.Generator().manual_seed(rows)
    rollout = -3.0 * torch.rand(rows, length, generator=generator, dtype=torch.float64)
    old = rollout + 0.5 * torch.randn(rows, length, generator=generator, dtype=torch.float64)
    old[0, 0] = -30.0
    rollout[1, 1] = float("nan")
    mask = torch.rand(rows, length, generator=generator) < 0.8
    mask[0, 0] = mask[1, 1] = True
    batch = Batch(old.tolist(), rollout.tolist(), mask.double().tolist())
    return lay_out(batch, layout, torch.float32, mask_dtype=torch.bool)


def step(metric: RolloutISMetrics) -> Any:
    """Weights and the packed statistics, as one training step computes them."""

    def weights_and_statistics(old: Tensor, rollout: Tensor, mask: Tensor, cu_seqlens: Tensor | None) -> Any:
        weights = importance_weights(old, rollout, mask, cu_seqlens=cu_seqlens, **metric.config.weight_options)
        return weights.weight, metric.packing.pack(weights)

    return weights_and_statistics


# The same trace for both backends; machine code takes half a minute a case, so one level stands for all.
@pytest.mark.parametrize(
    ("level", "layout", "backend"),
    [
        *(
            (level, layout, "aot_eager")
            for level in ("token", "sequence", "geometric")
            for layout in ("right", "packed")
        ),
        ("geometric", "packed", "inductor"),
    ],
)
def test_compiled_equals_eager_for_any_shape(level: str, layout: str, backend: str) -> None:
    eager = step(RolloutISMetrics(config_of(TOKEN | {"level": level, "upper": 5.0})))
    compiled = torch.compile(eager, fullgraph=True, dynamic=True, backend=backend)
    for rows, length in ((4, 7), (5, 9), (3, 12)):
        tensors = random_tensors(rows, length, layout)
        for computed, expected in zip(compiled(*tensors), eager(*tensors), strict=True):
            torch.testing.assert_close(computed, expected, rtol=1e-5, atol=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, "one graph for every shape"


def test_gradient_of_a_compiled_loss() -> None:
    """The weight is a constant of the loss there too."""
    config = config_of(TOKEN)

    def loss(log_prob: Tensor, rollout: Tensor, mask: Tensor) -> Tensor:
        weight = importance_weights(log_prob, rollout, mask, **config.weight_options).weight
        return -(weight * log_prob).sum()

    log_prob = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    rollout, mask = torch.tensor([[-1.5, -1.9]]), torch.tensor([[True, True]])
    torch.compile(loss, fullgraph=True, backend="aot_eager")(log_prob, rollout, mask).backward()
    expected = -importance_weights(log_prob, rollout, mask, **config.weight_options).weight
    torch.testing.assert_close(log_prob.grad, expected)
