"""Every statistic of real rollouts against the oracle, in each level, mode and layout, whole or in micro-batches."""

import itertools
from typing import Any

import pytest
import torch

from lightning_rollout_is import compute_rollout_importance_weights, importance_weights
from tests.real_rollouts.presets import PRESETS
from tests.real_rollouts.rollouts import ENGINES, read_batch
from tests.reference import oracle
from tests.reference.batches import LAYOUTS, Batch, as_seen, lay_out, read_rows
from tests.reference.closeness import NOISE, assert_metrics_close, assert_weights_close, is_on_a_knife_edge
from tests.reference.metric_values import metrics_of

LEVELS, MODES = ("token", "sequence", "geometric"), ("truncate", "mask")
UPPER = {"token": 2.0, "sequence": 2.0, "geometric": 1.0009}
# No token of these data lies under the usual veto of 1e-4, which the presets have.
SETTINGS = [
    {"level": level, "mode": mode, "upper": UPPER[level], "lower": None, "veto": 0.05}
    for level in LEVELS
    for mode in MODES
]
OF_PRESETS = [config.weight_options for name, config in PRESETS.items() if name != "monitor"]


@pytest.mark.parametrize(
    ("dtype", "choices"), [(torch.float64, SETTINGS), (torch.float32, OF_PRESETS)], ids=["float64", "float32-presets"]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_statistic_and_weight(engine: str, dtype: torch.dtype, choices: list[dict[str, Any]]) -> None:
    recorded = read_batch(engine)
    for settings, layout in zip(choices, itertools.cycle(LAYOUTS), strict=False):
        tensors = lay_out(recorded, layout, dtype, padding=float("nan"))
        batch = as_seen(recorded, tensors, layout)
        assert not is_on_a_knife_edge(batch, settings, NOISE[dtype])
        metrics = metrics_of([tensors], **settings)
        assert_metrics_close(metrics, oracle.metrics(*batch, **settings), batch, settings, NOISE[dtype])
        weight = importance_weights(*tensors[:3], cu_seqlens=tensors.cu_seqlens, **settings).weight
        expected = oracle.weights(*batch, **settings)
        assert_weights_close(read_rows(weight, batch, layout), expected, batch, NOISE[dtype])


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_padding_packing_and_micro_batches_agree(settings: dict[str, Any]) -> None:
    """Eight micro-batches, one a prompt, of different widths."""
    batch = read_batch("llama_cpp_q4_0")
    whole = metrics_of([lay_out(batch)], **settings)
    for layout in LAYOUTS:
        of_prompts = [Batch(*(field[first : first + 4] for field in batch)) for first in range(0, 32, 4)]
        parts = metrics_of([lay_out(part, layout) for part in of_prompts], **settings)
        assert parts == pytest.approx(whole, rel=1e-12, abs=1e-10, nan_ok=True)


@pytest.mark.parametrize("level", LEVELS)
def test_the_entry_point_of_the_reference(level: str) -> None:
    batch = read_batch("llama_cpp_q8_0")
    settings = {"level": level, "mode": "mask", "upper": UPPER[level]}
    weight, values = compute_rollout_importance_weights(
        *lay_out(batch)[:3], level, "mask", rollout_is_threshold=UPPER[level], rollout_is_veto_threshold=None
    )
    expected = {f"mismatch/{name}": value for name, value in oracle.metrics(*batch, **settings).items()}
    assert {name: values[name] for name in expected} == pytest.approx(expected, rel=1e-7, abs=1e-12)
    assert weight is not None
    assert_weights_close(read_rows(weight, batch, "right"), oracle.weights(*batch, **settings), batch, 1e-12)
