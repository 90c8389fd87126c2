"""Points as the callback writes them."""

import math

HEALTHY = {
    "rollout_is_mean": 1.0003,
    "rollout_is_std": 0.1,
    "rollout_is_min": 0.4,
    "rollout_is_max": 1.9,
    "rollout_is_eff_sample_size": 0.98,
    "rollout_is_veto_fraction": 0.0,
    "rollout_is_catastrophic_token_fraction": 0.0,
    "rollout_is_ratio_fraction_high": 0.0,
    "rollout_is_ratio_fraction_low": 0.001,
    "rollout_is_missing_fraction": 0.0,
    "rollout_is_seq_mean": 1.0,
    "rollout_is_seq_std": 0.02,
    "rollout_is_seq_min": 0.96,
    "rollout_is_seq_max": 1.05,
    "rollout_is_seq_max_deviation": 0.05,
    "rollout_is_seq_fraction_high": 0.0,
    "rollout_is_seq_fraction_low": 0.0,
    "rollout_is_masked_fraction": 0.001,
    "rollout_is_seq_masked_fraction": 0.01,
    "mismatch_training_ppl": 2.1,
    "mismatch_rollout_ppl": 2.08,
    "mismatch_training_log_ppl": 0.7,
    "mismatch_rollout_log_ppl": 0.695,
    "mismatch_log_ppl_diff": 0.005,
    "mismatch_log_ppl_abs_diff": 0.006,
    "mismatch_log_ppl_diff_max": 0.05,
    "mismatch_log_ppl_diff_min": -0.03,
    "mismatch_ppl_ratio": 1.005,
    "mismatch_kl": 0.005,
    "mismatch_k3_kl": 0.0053,
    "rollout_is_applied_mean": 0.99,
    "rollout_is_applied_eff_sample_size": 0.97,
    "mismatch_chi2_token": 0.011,
    "mismatch_chi2_seq": 0.2,
    "mismatch_probs_diff_mean": 0.01,
    "mismatch_probs_diff_max": 0.4,
    "mismatch_kl_stderr": 0.001,
    "rollout_is_mean_stderr": 0.001,
    "mismatch_confident_disagreement_fraction": 0.0,
    **{f"mismatch_abs_log_ratio_decile_{decile:02d}": 0.05 for decile in range(1, 11)},
    **{f"mismatch_k3_kl_decile_{decile:02d}": 0.0053 for decile in range(1, 11)},
    **{f"mismatch_log_ratio_p{percent:02d}": (percent - 50) / 250 for percent in (1, 5, 50, 95, 99)},
}
SAME_TENSOR = {
    **HEALTHY,
    "rollout_is_mean": 1.0,
    "rollout_is_std": 0.0,
    "rollout_is_min": 1.0,
    "rollout_is_max": 1.0,
    "rollout_is_eff_sample_size": 1.0,
    "mismatch_kl": 0.0,
    "mismatch_k3_kl": 0.0,
}
ALL_MISSING = dict.fromkeys(HEALTHY, math.nan) | {"rollout_is_missing_fraction": 1.0}


def point(base=HEALTHY, prefix="mismatch/", **changed):
    """A point in which some values differ."""
    return {prefix + name: value for name, value in {**base, **changed}.items()}


def profile(*sizes):
    """Mean size of the log ratio by decile of the response."""
    return {f"mismatch_abs_log_ratio_decile_{decile:02d}": size for decile, size in enumerate(sizes, start=1)}


def rules_of(findings):
    """The names of the rules."""
    return [finding.rule for finding in findings]
