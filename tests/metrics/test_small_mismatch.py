"""A healthy run differs by a ten-thousandth of a nat, and float32 must still show by how much."""

from typing import Any

import pytest
import torch

from tests.reference import oracle
from tests.reference.batches import Batch, as_seen, lay_out
from tests.reference.metric_values import TOKEN, metrics_of

NAMES = (
    "rollout_is_std",
    "rollout_is_seq_max_deviation",
    "mismatch_kl",
    "mismatch_k3_kl",
    "mismatch_log_ppl_abs_diff",
    "mismatch_log_ppl_diff_max",
)


def mismatched(magnitude: float, rows: int = 8, length: int = 64) -> Batch:
    generator = torch.Generator().manual_seed(0)
    old = -5.0 * torch.rand(rows, length, generator=generator, dtype=torch.float64)
    rollout = old + magnitude * torch.randn(rows, length, generator=generator, dtype=torch.float64)
    return Batch(old.tolist(), rollout.tolist(), [[1.0] * length] * rows)


@pytest.mark.parametrize("layout", ["right", "packed"])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize(("magnitude", "relative"), [(1e-2, 1e-5), (1e-4, 1e-3), (1e-5, 1e-2)])
def test_float32_keeps_the_digits(magnitude: float, relative: float, level: str, layout: str) -> None:
    settings: dict[str, Any] = TOKEN | {"level": level, "upper": 1.5}
    batch = mismatched(magnitude)
    tensors = lay_out(batch, layout, torch.float32)
    expected = oracle.metrics(*as_seen(batch, tensors, layout), **settings)
    computed = metrics_of([tensors], **settings)
    for name in (*NAMES, "rollout_is_seq_std"):
        assert computed[name] == pytest.approx(expected[name], rel=relative, abs=0.0), name


def test_k3_of_one_token() -> None:
    """A naive ``exp(x) - x - 1`` gives 0 here."""
    batch = Batch([[-1.0]], [[-1.0001]], [[1.0]])
    tensors = lay_out(batch, old_dtype=torch.float32)
    computed = metrics_of([tensors])["mismatch_k3_kl"]
    expected = oracle.metrics(*as_seen(batch, tensors, "right"), **TOKEN)["mismatch_k3_kl"]
    assert computed == pytest.approx(expected, rel=1e-3, abs=0.0)
    assert computed == pytest.approx(5e-9, rel=1e-2)
