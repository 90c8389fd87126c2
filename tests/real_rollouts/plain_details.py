"""The statistics beyond the specification in plain Python: float64, lists, and nothing of the library under test."""

import math

from tests.reference import oracle
from tests.reference.batches import Batch

Pairs = list[list[tuple[float, float]]]


def pairs_of(batch: Batch) -> Pairs:
    """Training and rollout log-prob of each token, by sequence."""
    return [list(zip(old, rollout, strict=True)) for old, rollout in zip(batch.old, batch.rollout, strict=True)]


def log_ratios(batch: Batch) -> list[list[float]]:
    return [[old - rollout for old, rollout in row] for row in pairs_of(batch)]


def applied(weights: oracle.Rows) -> dict[str, float]:
    """Of the weights that multiply the loss, by the definition of Kish."""
    flat = [weight for row in weights for weight in row]
    squares = math.fsum(weight * weight for weight in flat)
    return {
        "rollout_is_applied_mean": math.fsum(flat) / len(flat),
        "rollout_is_applied_eff_sample_size": math.fsum(flat) ** 2 / squares / len(flat) if squares else 0.0,
    }


def chi_square(batch: Batch) -> dict[str, float]:
    rows = log_ratios(batch)
    tokens = [math.exp(2 * value) for row in rows for value in row]
    sequences = [math.exp(2 * max(math.fsum(row), -20.0)) for row in rows]
    return {
        "mismatch_chi2_token": oracle.mean(tokens) - 1.0,
        "mismatch_chi2_seq": oracle.mean(sequences) - 1.0,
    }


def probabilities(batch: Batch) -> dict[str, float]:
    tokens = [token for row in pairs_of(batch) for token in row]
    gaps = [abs(math.exp(old) - math.exp(rollout)) for old, rollout in tokens]
    denied = [rollout >= math.log(0.5) and old - rollout < -2.0 for old, rollout in tokens]
    return {
        "mismatch_probs_diff_mean": oracle.mean(gaps),
        "mismatch_probs_diff_max": max(gaps),
        "mismatch_confident_disagreement_fraction": sum(denied) / len(denied),
    }


def standard_error(rows: list[list[float]]) -> float:
    """Of the mean over all tokens, whose sequences are independent and whose tokens are not (Cochran, 1977)."""
    count = sum(len(row) for row in rows)
    mean = math.fsum(value for row in rows for value in row) / count
    residuals = [math.fsum(value - mean for value in row) for row in rows]
    return math.sqrt(len(rows) / (len(rows) - 1) * math.fsum(value**2 for value in residuals)) / count


def position_profile(batch: Batch) -> dict[str, float]:
    found: dict[int, list[float]] = {decile: [] for decile in range(10)}
    for row in log_ratios(batch):
        for place, value in enumerate(row):
            found[10 * place // len(row)].append(value)
    result = {}
    for decile, values in found.items():
        result[f"mismatch_abs_log_ratio_decile_{decile + 1:02d}"] = oracle.mean([abs(value) for value in values])
        result[f"mismatch_k3_kl_decile_{decile + 1:02d}"] = oracle.mean([math.expm1(v) - v for v in values])
    return result


def quantile(batch: Batch, percent: int) -> float:
    """The least log ratio that at least so many of the tokens do not exceed."""
    ordered = sorted(value for row in log_ratios(batch) for value in row)
    return ordered[-(-percent * len(ordered) // 100) - 1]
