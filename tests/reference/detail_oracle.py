"""What the package adds to the specification, from its documented definitions, in plain Python like ``oracle.py``."""

import math

from tests.reference.oracle import (
    LOG_LIMIT,
    Rows,
    Sequence,
    clamp,
    clamped_exp_minus_one,
    is_missing,
    mean,
    read_batch,
    weights,
)

PERCENTS = (1, 5, 50, 95, 99)
SMALLEST, LARGEST = 2.0**-17, 2.0**5


def quantile(values: list[float], percent: int) -> float:
    """The least value that at least so many percent do not exceed."""
    return sorted(values)[max(math.ceil(percent * len(values) / 100), 1) - 1]


def middle_of_bin(value: float) -> float:
    """Four bins an octave from 2^-17 to 2^5 on either side of 0, and one about it."""
    if abs(value) < SMALLEST:
        return 0.0
    quarter = math.floor(4.0 * math.log2(min(abs(value), LARGEST * 0.999)))
    return math.copysign(2.0 ** ((quarter + 0.5) / 4.0), value)


def applied(values: list[float]) -> dict[str, float]:
    squares = math.fsum(value * value for value in values)
    total = math.fsum(values)
    return {
        "rollout_is_applied_mean": mean(values),
        "rollout_is_applied_eff_sample_size": total**2 / (len(values) * squares) if squares else 0.0,
    }


def second_moment(log_weights: list[float]) -> float:
    """E[w^2] - 1."""
    about_one = [clamped_exp_minus_one(value) for value in log_weights]
    return mean([value * value + 2.0 * value for value in about_one])


def probabilities(sequences: list[Sequence]) -> dict[str, float]:
    tokens = [token for sequence in sequences for token in sequence.tokens]
    gaps = [
        math.exp(max(token.old, token.rollout)) * -math.expm1(-abs(token.log_ratio))
        for token in tokens
    ]  # fmt: skip
    contradicted = [float(token.rollout >= math.log(0.5) and token.log_ratio < -2.0) for token in tokens]
    return {
        "mismatch_probs_diff_mean": mean(gaps),
        "mismatch_probs_diff_max": max(gaps),
        "mismatch_confident_disagreement_fraction": mean(contradicted),
    }


def standard_error(totals: list[float], counts: list[int]) -> float:
    """Of the sum of totals over the sum of counts, clustered."""
    ratio = math.fsum(totals) / sum(counts)
    squares = math.fsum((total - ratio * count) ** 2 for total, count in zip(totals, counts, strict=True))
    clusters = len(counts)
    return math.sqrt(squares * clusters / (clusters - 1)) / sum(counts)


def standard_errors(sequences: list[Sequence]) -> dict[str, float]:
    counts = [len(sequence.tokens) for sequence in sequences]
    k1 = [-math.fsum(token.log_ratio for token in sequence.tokens) for sequence in sequences]
    excess = [math.fsum(clamped_exp_minus_one(value) for value in sequence.log_weights) for sequence in sequences]
    if len(counts) < 2 or any(math.isinf(value) for value in k1):
        return {"rollout_is_mean_stderr": standard_error(excess, counts)} if len(counts) > 1 else {}
    return {
        "mismatch_kl_stderr": standard_error(k1, counts),
        "rollout_is_mean_stderr": standard_error(excess, counts),
    }


def profile(old: Rows, rollout: Rows, mask: Rows) -> dict[str, float]:
    """By tenth of the response: of n tokens inside the mask, number i from 0 lies in tenth 10 i / n."""
    tenths: list[list[float]] = [[] for _ in range(10)]
    for row in zip(old, rollout, mask, strict=True):
        inside = [(one, other) for one, other, chosen in zip(*row, strict=True) if chosen]
        for place, (one, other) in enumerate(inside):
            if not is_missing(one, other):
                tenths[10 * place // len(inside)].append(clamp(one - other, -LOG_LIMIT, LOG_LIMIT))
    found = {}
    for number, values in enumerate(tenths, start=1):
        if values:
            found[f"mismatch_abs_log_ratio_decile_{number:02d}"] = mean([abs(value) for value in values])
            found[f"mismatch_k3_kl_decile_{number:02d}"] = mean([math.expm1(value) - value for value in values])
    return found


def details(
    old: Rows,
    rollout: Rows,
    mask: Rows,
    level: str,
    mode: str,
    upper: float,
    lower: float | None = None,
    veto: float | None = None,
) -> dict[str, float]:
    """Every added value that is defined on this batch."""
    batch = read_batch(old, rollout, mask, level, veto)
    sequences = [sequence for sequence in batch if sequence.tokens]
    if not sequences:
        return {}
    weight_rows = weights(old, rollout, mask, level, mode, upper, lower, veto)
    multiplied = [
        row[token.position] for row, one in zip(weight_rows, batch, strict=True) for token in one.tokens
    ]  # fmt: skip
    log_ratios = [token.log_ratio for sequence in sequences for token in sequence.tokens]
    whole = [math.fsum(token.log_ratio for token in sequence.tokens) for sequence in sequences]
    return {
        **applied(multiplied),
        "mismatch_chi2_token": second_moment(log_ratios),
        "mismatch_chi2_seq": second_moment(whole),
        **probabilities(sequences),
        **standard_errors(sequences),
        **{f"mismatch_log_ratio_p{each:02d}": middle_of_bin(quantile(log_ratios, each)) for each in PERCENTS},
        **profile(old, rollout, mask),
    }


def histogram(values: list[float], edges: list[float]) -> list[int]:
    """Counts from each edge to the next; the outermost bins also take what lies beyond them."""
    counts = [0] * (len(edges) - 1)
    for value in values:
        reached = sum(1 for edge in edges[1:-1] if value >= edge)
        counts[reached] += 1
    return counts
