"""How far a correct library may be from the oracle, derived from the rounding of its inputs' precision."""

import math
from typing import Any

import pytest
import torch

from tests.reference import oracle
from tests.reference.batches import Batch

# A few units in the last place. The difference of two log-probs is rounded relative to itself, so a log ratio carries
# one; a sum of log ratios carries one of each term.
NOISE = {torch.float64: 1e-12, torch.float32: 4e-7}

# A moment about 1 in float64 loses half of its digits when the weights are equal and far from 1.
MOMENT_NOISE = 1e-7
# A spread of weights about 1 that no weight of float64 can show.
SMALLEST_SPREAD = 1e-16

LEVEL_OF_MISMATCH = ("mismatch_kl", "mismatch_k3_kl")
# Kept as a mean of deviations from 1.
ABOUT_ONE = ("rollout_is_mean", "rollout_is_seq_mean", "rollout_is_seq_min", "rollout_is_seq_max", "mismatch_ppl_ratio")
LOG_PPL = ("mismatch_training_log_ppl", "mismatch_rollout_log_ppl")


def computed_dtype(*dtypes: torch.dtype) -> torch.dtype:
    """Float32 or wider, whatever goes in."""
    result = torch.float32
    for dtype in dtypes:
        result = torch.promote_types(result, dtype)
    return result


def finite_magnitude(rows: oracle.Rows) -> float:
    return max((abs(value) for row in rows for value in row if math.isfinite(value)), default=0.0)


def log_ratios(batch: Batch) -> oracle.Rows:
    rows = zip(batch.old, batch.rollout, batch.mask, strict=True)
    return [[token.log_ratio for token in oracle.read_tokens(*row)] for row in rows]


def log_weight_error(batch: Batch, noise: float) -> float:
    """Bound on the absolute error of any log weight, in nats."""
    sums = [sum(abs(value) for value in row if math.isfinite(value)) for row in log_ratios(batch)]
    return noise * max(sums)


def is_on_a_knife_edge(batch: Batch, settings: dict[str, Any], noise: float) -> bool:
    """Whether rounding alone decides on which side of a threshold some token, weight or sequence falls."""
    upper, veto = settings["upper"], settings["veto"]
    edges = [math.log(upper), math.log(settings["lower"] or 1.0 / upper)]
    sequences = oracle.read_batch(*batch, settings["level"], veto)
    weights = [value for sequence in sequences for value in sequence.log_weights]
    means = [
        math.log(oracle.mean([oracle.clamped_exp(value) for value in sequence.log_weights]))
        for sequence in sequences
        if sequence.tokens
    ]
    distances = [abs(value - edge) for value in weights + means for edge in edges]
    if veto is not None:
        distances += [abs(value - math.log(veto)) for row in log_ratios(batch) for value in row]
    return min(distances, default=math.inf) <= 4 * (noise + log_weight_error(batch, noise))


def metric_tolerance(
    name: str, expected: dict[str, float], batch: Batch, settings: dict[str, Any], noise: float
) -> tuple[float, float]:
    """Relative and absolute tolerance of one metric."""
    error = log_weight_error(batch, noise)
    upper = settings["upper"]
    lower = settings["lower"] or 1.0 / upper
    if name == "rollout_is_std":
        ends = [oracle.clamp(expected[f"rollout_is_{end}"], lower, upper) for end in ("min", "max")]
        return noise, error * upper + (noise + MOMENT_NOISE) * max(abs(end - 1.0) for end in ends) + SMALLEST_SPREAD
    if name == "rollout_is_seq_std":
        deviation = expected["rollout_is_seq_max_deviation"]
        return noise, error * expected["rollout_is_seq_max"] + (noise + MOMENT_NOISE) * deviation + SMALLEST_SPREAD
    if name == "rollout_is_seq_max_deviation":
        return 2 * noise, error * expected["rollout_is_seq_max"]
    if name in LEVEL_OF_MISMATCH or "_diff" in name:
        return 4 * noise, noise * finite_magnitude(log_ratios(batch))
    if name in LOG_PPL:
        return noise, noise * finite_magnitude(batch.old + batch.rollout)
    return 4 * (noise + error) + noise * 20.0 * name.endswith("_ppl"), noise * (name in ABOUT_ONE)


def assert_weights_close(computed: oracle.Rows, expected: oracle.Rows, batch: Batch, noise: float) -> None:
    relative = 2 * (noise + log_weight_error(batch, noise))
    for computed_row, expected_row in zip(computed, expected, strict=True):
        assert computed_row == pytest.approx(expected_row, rel=relative, abs=0.0)


def assert_metrics_close(
    computed: dict[str, float], expected: dict[str, float], batch: Batch, settings: dict[str, Any], noise: float
) -> None:
    """Every metric that the oracle defines, and NaN for every other one."""
    for name, value in computed.items():
        if name not in expected:
            assert math.isnan(value), f"{name} = {value}, undefined on this batch"
            continue
        relative, absolute = metric_tolerance(name, expected, batch, settings, noise)
        assert value == pytest.approx(expected[name], rel=relative, abs=absolute), name
    assert expected.keys() <= computed.keys()
