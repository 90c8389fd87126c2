"""What the specification says, in plain Python: float64, loops over lists, and nothing of the library under test.

A batch is a list of sequences, each a list of tokens, and sequences may differ in length. How tokens lie in a tensor is
the tests' business. Every sum is exactly rounded (``math.fsum``) and every moment takes two passes.
"""

import math
from typing import NamedTuple

LOG_LIMIT = 20.0
MISSING_SENTINEL = -9984.0  # -9999 in bfloat16

Rows = list[list[float]]


class Token(NamedTuple):
    """A token inside the mask whose log-probs are both known."""

    position: int
    old: float
    rollout: float

    @property
    def log_ratio(self) -> float:
        return self.old - self.rollout


class Sequence(NamedTuple):
    """The tokens of one sequence, and each one's raw log weight, not clamped."""

    tokens: list[Token]
    log_weights: list[float]
    vetoed: bool


def clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def clamped_exp(exponent: float) -> float:
    return math.exp(clamp(exponent, -LOG_LIMIT, LOG_LIMIT))


def clamped_exp_minus_one(exponent: float) -> float:
    return math.expm1(clamp(exponent, -LOG_LIMIT, LOG_LIMIT))


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def standard_deviation(values: list[float], degrees_lost: int) -> float:
    if len(values) == 1:
        return 0.0
    center = mean(values)
    return math.sqrt(math.fsum((value - center) ** 2 for value in values) / (len(values) - degrees_lost))


def is_missing(old: float, rollout: float) -> bool:
    if math.isnan(old) or old == math.inf:
        return True
    return not math.isfinite(rollout) or rollout <= MISSING_SENTINEL


def read_tokens(old_row: list[float], rollout_row: list[float], mask_row: list[float]) -> list[Token]:
    tokens = []
    for position, (old, rollout, inside) in enumerate(zip(old_row, rollout_row, mask_row, strict=True)):
        if inside and not is_missing(old, rollout):
            tokens.append(Token(position, old, rollout))
    return tokens


def read_sequence(tokens: list[Token], level: str, veto: float | None) -> Sequence:
    log_ratios = [token.log_ratio for token in tokens]
    if level == "token":
        log_weights = log_ratios
    elif level == "sequence":
        log_weights = [math.fsum(log_ratios)] * len(tokens)
    elif level == "geometric":
        log_weights = [math.fsum(log_ratios) / len(tokens)] * len(tokens) if tokens else []
    else:
        raise ValueError(level)
    vetoed = veto is not None and any(log_ratio < math.log(veto) for log_ratio in log_ratios)
    return Sequence(tokens, log_weights, vetoed)


def bound(weight: float, mode: str, upper: float, lower: float) -> float:
    if mode == "truncate":
        return min(weight, upper)
    if mode == "mask":
        return weight if lower <= weight <= upper else 0.0
    raise ValueError(mode)


def read_batch(old: Rows, rollout: Rows, mask: Rows, level: str, veto: float | None) -> list[Sequence]:
    rows = zip(old, rollout, mask, strict=True)
    return [read_sequence(read_tokens(*row), level, veto) for row in rows]


def weights(
    old: Rows,
    rollout: Rows,
    mask: Rows,
    level: str,
    mode: str,
    upper: float,
    lower: float | None = None,
    veto: float | None = None,
) -> Rows:
    """The weight that multiplies each token's loss."""
    lower = 1.0 / upper if lower is None else lower
    result = [[0.0] * len(row) for row in mask]
    for row, sequence in zip(result, read_batch(old, rollout, mask, level, veto), strict=True):
        for token, log_weight in zip(sequence.tokens, sequence.log_weights, strict=True):
            row[token.position] = 0.0 if sequence.vetoed else bound(clamped_exp(log_weight), mode, upper, lower)
    return result


def weighted_loss_gradient(weight_rows: Rows, mask: Rows) -> Rows:
    """Gradient of ``sum(weight * token_loss) / tokens inside the mask`` with respect to each ``token_loss``."""
    count = sum(1 for row in mask for inside in row if inside)
    return [[weight / count for weight in row] for row in weight_rows]


def weight_metrics(sequences: list[Sequence], level: str, upper: float, lower: float) -> dict[str, float]:
    """Section 5.1, apart from the veto."""
    log_weights = [log_weight for sequence in sequences for log_weight in sequence.log_weights]
    raw = [clamped_exp(log_weight) for log_weight in log_weights]
    clamped = [clamp(weight, lower, upper) for weight in raw]
    # About 1, where a weight that differs from it by less than 1e-16 still does.
    about_one = [clamp(clamped_exp_minus_one(value), lower - 1.0, upper - 1.0) for value in log_weights]
    center = mean(clamped)
    # Extremes of sequences come from the log weight itself, clamped above only.
    extremes = raw if level == "token" else [math.exp(min(value, LOG_LIMIT)) for value in log_weights]
    counted = [clamped_exp(sequence.log_weights[0]) for sequence in sequences] if level == "sequence" else raw
    return {
        "rollout_is_mean": mean(raw),
        "rollout_is_std": standard_deviation(about_one, degrees_lost=0),
        "rollout_is_min": min(extremes),
        "rollout_is_max": max(extremes),
        "rollout_is_eff_sample_size": 1.0 / mean([(weight / center) ** 2 for weight in clamped]),
        "rollout_is_ratio_fraction_high": mean([float(weight > upper) for weight in counted]),
        "rollout_is_ratio_fraction_low": mean([float(weight < lower) for weight in counted]),
    }


def veto_metrics(sequences: list[Sequence], veto: float | None) -> dict[str, float]:
    """Section 5.1, the veto."""
    log_ratios = [token.log_ratio for sequence in sequences for token in sequence.tokens]
    catastrophic = [float(veto is not None and log_ratio < math.log(veto)) for log_ratio in log_ratios]
    return {
        "rollout_is_veto_fraction": mean([float(sequence.vetoed) for sequence in sequences]),
        "rollout_is_catastrophic_token_fraction": mean(catastrophic),
    }


def sequence_metrics(sequences: list[Sequence], upper: float, lower: float) -> dict[str, float]:
    """Section 5.2."""
    means = [mean([clamped_exp(value) for value in sequence.log_weights]) for sequence in sequences]
    deviations = [mean([clamped_exp_minus_one(value) for value in sequence.log_weights]) for sequence in sequences]
    return {
        "rollout_is_seq_mean": mean(means),
        "rollout_is_seq_std": standard_deviation(deviations, degrees_lost=1),
        "rollout_is_seq_min": min(means),
        "rollout_is_seq_max": max(means),
        "rollout_is_seq_max_deviation": max(abs(value) for value in deviations),
        "rollout_is_seq_fraction_high": mean([float(value > upper) for value in means]),
        "rollout_is_seq_fraction_low": mean([float(value < lower) for value in means]),
    }


def masking_metrics(sequences: list[Sequence], upper: float, lower: float) -> dict[str, float]:
    """Section 5.3."""
    outside = [[not lower <= clamped_exp(value) <= upper for value in sequence.log_weights] for sequence in sequences]
    return {
        "rollout_is_masked_fraction": mean([float(value) for row in outside for value in row]),
        "rollout_is_seq_masked_fraction": mean([float(any(row)) for row in outside]),
    }


def mismatch_metrics(sequences: list[Sequence]) -> dict[str, float]:
    """Section 5.4."""
    log_ratios = [token.log_ratio for sequence in sequences for token in sequence.tokens]
    training = [-mean([token.old for token in sequence.tokens]) for sequence in sequences]
    rollout = [-mean([token.rollout for token in sequence.tokens]) for sequence in sequences]
    # Taken token by token: the difference of two means would lose the digits of a small mismatch.
    difference = [-mean([token.log_ratio for token in sequence.tokens]) for sequence in sequences]
    k3 = [clamped_exp_minus_one(value) - min(value, LOG_LIMIT) for value in log_ratios]
    return {
        "mismatch_training_ppl": mean([clamped_exp(value) for value in training]),
        "mismatch_rollout_ppl": mean([clamped_exp(value) for value in rollout]),
        "mismatch_training_log_ppl": mean(training),
        "mismatch_rollout_log_ppl": mean(rollout),
        "mismatch_log_ppl_diff": mean(difference),
        "mismatch_log_ppl_abs_diff": mean([abs(value) for value in difference]),
        "mismatch_log_ppl_diff_max": max(difference),
        "mismatch_log_ppl_diff_min": min(difference),
        "mismatch_ppl_ratio": mean([clamped_exp(value) for value in difference]),
        "mismatch_kl": -mean(log_ratios),
        "mismatch_k3_kl": mean(k3),
    }


def metrics(
    old: Rows,
    rollout: Rows,
    mask: Rows,
    level: str,
    mode: str,
    upper: float,
    lower: float | None = None,
    veto: float | None = None,
) -> dict[str, float]:
    """Every metric of the specification that is defined on this batch, and the fraction of missing tokens."""
    lower = 1.0 / upper if lower is None else lower
    sequences = [sequence for sequence in read_batch(old, rollout, mask, level, veto) if sequence.tokens]
    masked_in = sum(1 for row in mask for inside in row if inside)
    known = sum(len(sequence.tokens) for sequence in sequences)
    result = {"rollout_is_missing_fraction": (masked_in - known) / masked_in} if masked_in else {}
    if not sequences:
        return result
    result |= weight_metrics(sequences, level, upper, lower)
    result |= veto_metrics(sequences, veto)
    result |= sequence_metrics(sequences, upper, lower)
    result |= mismatch_metrics(sequences)
    if mode == "mask":
        result |= masking_metrics(sequences, upper, lower)
    return result
