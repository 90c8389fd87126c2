"""The statistics that matter, each with what is healthy and from where on it calls for action."""

from __future__ import annotations

import math

from lightning_rollout_is.healthy_ranges.range import HealthyRange


def _share(
    label: str, healthy: float, warning: float = math.inf, *, meaning: str = "", remedy: str = ""
) -> HealthyRange:
    return HealthyRange(label, 0.0, (-math.inf, healthy), (-math.inf, warning), meaning, remedy)


SAME_MODEL = "check that both policies are the same model, with the same weights, and that log-probs are in float32"
BOUNDS = "adjust algorithm.rollout_is_threshold (token 1.5 to 5, sequence 2 to 10, geometric 1.0002 to 1.001)"

RANGES: dict[str, HealthyRange] = {
    "mismatch_k3_kl": HealthyRange(
        "K3, nats a token",
        0.0,
        (-math.inf, 5e-4),
        meaning="the rollout engine gives its own tokens other probabilities than the trainer does",
        remedy=(
            "sample in more bits: actor_rollout_ref.rollout.dtype: bfloat16 without quantisation (rollout=bf16), or "
            "with rollout=llama_cpp actor_rollout_ref.rollout.engine.weight_type: F16; as long as the two differ, keep "
            "the loss corrected: algorithm.rollout_is: true"
        ),
    ),
    "mismatch_kl": HealthyRange(
        "KL(rollout || training), nats a token",
        0.0,
        (-0.01, 0.01),
        (-0.1, 0.1),
        "on average the trainer disagrees with the engine about the sampled tokens",
        "compare temperature, top-p and precision of the engine and the trainer",
    ),
    "rollout_is_eff_sample_size": HealthyRange(
        "Effective sample size, share of the batch",
        1.0,
        (0.5, math.inf),
        (0.3, math.inf),
        "a few tokens carry most of the weight",
        "algorithm.rollout_is_level: geometric",
    ),
    "rollout_is_mean": HealthyRange(
        "Importance weight, mean",
        1.0,
        (0.8, 1.25),
        (0.5, 2.0),
        "the weights lean to one side",
        "check that the rollout log-probs belong to the same tokens (actor_rollout_ref.rollout.calculate_log_probs: "
        "true)",
        relative=True,
    ),
    "rollout_is_std": HealthyRange(
        "Importance weight, std",
        0.0,
        (-math.inf, 0.5),
        (-math.inf, 1.0),
        "the weights spread widely",
        "algorithm.rollout_is_level: geometric",
    ),
    "rollout_is_max": HealthyRange("Importance weight, largest", 1.0, relative=True),
    "mismatch_ppl_ratio": HealthyRange(
        "Perplexity, training / rollout",
        1.0,
        (0.9, 1.1),
        meaning="one policy is the more confident of the two",
        remedy="compare the temperature of the engine and of the trainer",
        relative=True,
    ),
    "mismatch_confident_disagreement_fraction": _share(
        "Tokens the engine is sure of and the trainer contradicts",
        1e-3,
        2e-3,
        meaning="the trainer contradicts the engine on tokens of which the engine was sure",
        remedy="compare token ids and log-probs of one response on both sides; algorithm.rollout_is_mode: mask",
    ),
    "mismatch_chi2_token": HealthyRange(
        "Chi-square, tokens",
        0.0,
        (-math.inf, 1.0),
        (-math.inf, 1.0),
        "the raw weights vary by more than their own mean",
        BOUNDS,
    ),
    "mismatch_chi2_seq": HealthyRange("Chi-square, sequences", 0.0),
    "mismatch_probs_diff_mean": HealthyRange("|p - q| of the sampled tokens, mean", 0.0),
    "mismatch_probs_diff_max": HealthyRange("|p - q| of the sampled tokens, largest", 0.0),
    "mismatch_log_ratio_p01": HealthyRange("Log ratio, 1st percentile", 0.0),
    "mismatch_log_ratio_p99": HealthyRange("Log ratio, 99th percentile", 0.0),
    "rollout_is_applied_mean": HealthyRange(
        "Applied weight, mean",
        1.0,
        (0.8, 1.25),
        meaning="bounds and veto take a good part of the loss away, or the weights swell it",
        remedy=BOUNDS,
        relative=True,
    ),
    "rollout_is_applied_eff_sample_size": HealthyRange(
        "Effective sample size of the applied weights",
        1.0,
        (0.5, math.inf),
        (0.3, math.inf),
        "after bounds and veto a few tokens carry most of the loss",
        "algorithm.rollout_is_mode: truncate, or at sequence level algorithm.rollout_is_level: geometric",
    ),
    "rollout_is_veto_fraction": _share(
        "Vetoed sequences",
        0.05,
        0.1,
        meaning="sequences with a hopeless token train nothing",
        remedy="look for numeric faults in the log-probs; algorithm.rollout_is_veto_threshold: 1.0e-5 vetoes less",
    ),
    "rollout_is_catastrophic_token_fraction": _share(
        "Tokens under the veto",
        0.01,
        0.01,
        meaning="the trainer finds sampled tokens next to impossible",
        remedy=SAME_MODEL,
    ),
    "rollout_is_masked_fraction": _share(
        "Tokens masked by the bounds", 0.1, 0.3, meaning="the bounds drop many tokens", remedy=BOUNDS
    ),
    "rollout_is_ratio_fraction_high": _share(
        "Weights above the upper threshold", 0.1, meaning="many weights are cut at the top", remedy=BOUNDS
    ),
    "rollout_is_ratio_fraction_low": _share(
        "Weights under the lower threshold", 0.1, meaning="many weights lie under the bounds", remedy=BOUNDS
    ),
    "rollout_is_seq_max_deviation": _share(
        "Largest distance of a sequence's weight from 1", 1.0, meaning="single sequences stand apart", remedy=SAME_MODEL
    ),
    "rollout_is_missing_fraction": _share(
        "Tokens without a rollout log-prob",
        0.0,
        meaning="the engine left out the log-prob of some tokens, whose weight is 0",
        remedy="actor_rollout_ref.rollout.calculate_log_probs: true",
    ),
    "mismatch_kl_stderr": HealthyRange("KL, standard error", 0.0),
    "rollout_is_mean_stderr": HealthyRange("Importance weight, standard error of the mean", 0.0),
}
"""By metric name without prefix, the most telling first.

Warnings are the specification's. Where it leaves a healthy range open ("near 1"), or has none, the number is chosen
here: of the engines that ``examples/train.py`` can take, those in bfloat16 and int8 stay under a K3 of 5e-4 and int4
does not. Chi-square of tokens has the limit of verl's documentation (docs/algo/rollout_corr.md), which has none for
that of sequences, nor for |p - q|.
"""
