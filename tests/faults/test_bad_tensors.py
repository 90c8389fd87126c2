"""Malformed tensors at every public entry point: an error that names them, or NaN; never a plausible number."""

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_rollout_is import RolloutISMetrics, importance_weights
from tests.faults.entry_points import ENTRIES, Entry, batch, config_of

OLD, ROLLOUT, MASK = batch()
NAMES = ("old_log_prob", "rollout_log_prob", "response_mask")
# Counted over every token that the mask does not exclude: true whatever the mask's values mean.
STILL_DEFINED = "missing_fraction"


@pytest.mark.parametrize("value", [0.5, -100.0, 2.0, math.nan, math.inf, -1.0])
@pytest.mark.parametrize("name", ENTRIES)
def test_a_mask_value_other_than_0_and_1_shows_in_everything(name: str, value: float) -> None:
    mask = MASK.clone()
    mask[1, 2] = value
    if name == "reference_signature":  # reads the numbers back anyway, so it can say so
        with pytest.raises(ValueError, match="response_mask holds"):
            ENTRIES[name](OLD, ROLLOUT, mask)
        return
    results = ENTRIES[name](OLD, ROLLOUT, mask)
    for key, result in results.items():
        if not key.endswith(STILL_DEFINED):
            assert result.isnan().any(), key


@pytest.mark.parametrize("boundaries", [[1, 16, 48], [0, 20, 10, 48], [0, 16], [0, 16, 49], [0, 16, 60, 48]])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_boundaries_that_do_not_fit_show_in_every_metric(level: str, boundaries: list[int]) -> None:
    metric = RolloutISMetrics(config_of(level, "mask"))
    metric.update(OLD.flatten(), ROLLOUT.flatten(), MASK.flatten(), torch.tensor(boundaries))
    metric.update(OLD, ROLLOUT, MASK)
    for key, value in metric.compute().items():
        assert value.isnan() or key.endswith(STILL_DEFINED), key


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_empty_sequences_among_the_boundaries_are_fine(level: str) -> None:
    padded, packed = (RolloutISMetrics(config_of(level, "mask")) for _ in range(2))
    padded.update(OLD, ROLLOUT, MASK)
    boundaries = torch.tensor([0, 0, 16, 16, 16, 32, 48, 48], dtype=torch.int32)
    packed.update(OLD.flatten(), ROLLOUT.flatten(), MASK.flatten(), boundaries)
    for key, value in padded.compute().items():
        torch.testing.assert_close(packed.compute()[key], value, rtol=1e-12, atol=1e-15)


@pytest.mark.plain
class TestRefused:
    """The package's own words, without the run-time shape checker."""

    @pytest.mark.parametrize("position", range(3))
    @pytest.mark.parametrize("name", ENTRIES)
    def test_a_column_that_would_broadcast(self, name: str, position: int) -> None:
        if reads(name, position):
            refuse(ENTRIES[name], position, [OLD, ROLLOUT, MASK][position][:, :1], r"\(3, 1\)")

    @pytest.mark.parametrize("given", [None, [[1.0]], OLD.numpy()], ids=["None", "list", "numpy"])
    @pytest.mark.parametrize("position", range(2))
    @pytest.mark.parametrize("name", ENTRIES)
    def test_no_tensor(self, name: str, position: int, given: Any) -> None:
        if reads(name, position):
            refuse(ENTRIES[name], position, given, "None" if given is None else type(given).__name__)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
    @pytest.mark.parametrize("position", range(2))
    @pytest.mark.parametrize("name", ENTRIES)
    def test_a_log_prob_that_is_not_floating_point(self, name: str, position: int, dtype: torch.dtype) -> None:
        if reads(name, position):
            refuse(ENTRIES[name], position, OLD.to(dtype), str(dtype))

    @pytest.mark.parametrize("name", [name for name in ENTRIES if "ppo" not in name and "reinforce" not in name])
    def test_one_token_without_a_sequence(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"shape \(\)|shape \(4,\) without cu_seqlens"):
            ENTRIES[name](OLD[0, 0], ROLLOUT[0, 0], MASK[0, 0])
        with pytest.raises(ValueError, match=r"shape \(4,\) without cu_seqlens"):
            ENTRIES[name](OLD[0, :4], ROLLOUT[0, :4], MASK[0, :4])

    def test_a_complex_mask(self) -> None:
        refuse(ENTRIES["weights, token, mask"], 2, MASK.to(torch.complex64), "complex64")

    @pytest.mark.parametrize("boundaries", [[0, 48], (0, 48), 48])
    def test_boundaries_that_are_no_tensor(self, boundaries: Any) -> None:
        with pytest.raises(ValueError, match=f"cu_seqlens is a {type(boundaries).__name__}"):
            importance_weights(OLD.flatten(), ROLLOUT.flatten(), MASK.flatten(), upper=2.0, cu_seqlens=boundaries)

    @pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, "2", True])
    @pytest.mark.parametrize("option", ["upper", "lower", "veto"])
    def test_thresholds_without_a_configuration(self, option: str, value: Any) -> None:
        with pytest.raises(ValueError, match=rf"{option} = {re.escape(repr(value))} is not allowed; allowed: a finite"):
            importance_weights(OLD, ROLLOUT, MASK, **{"upper": 2.0, option: value})

    def test_thresholds_that_reject_everything(self) -> None:
        with pytest.raises(ValueError, match="lower = 3 is above upper = 2, so no weight would be kept"):
            importance_weights(OLD, ROLLOUT, MASK, upper=2.0, lower=3.0)

    def test_no_upper_threshold(self) -> None:
        with pytest.raises(ValueError, match="upper = None is not allowed"):
            importance_weights(OLD, ROLLOUT, MASK, upper=None)

    def test_a_threshold_under_one_without_its_lower_one(self) -> None:
        with pytest.raises(ValueError, match=r"lower = 2 is above upper = 0.5.*give both"):
            importance_weights(OLD, ROLLOUT, MASK, upper=0.5)


def reads(name: str, position: int) -> bool:
    """REINFORCE takes no second log-prob."""
    return not (name == "reinforce" and position == 1)


def refuse(entry: Entry, position: int, given: Any, message: str) -> None:
    tensors: list[Tensor] = [OLD, ROLLOUT, MASK]
    tensors[position] = given
    with pytest.raises(ValueError, match=message):
        entry(*tensors)
