"""The charts of the custom-scalars page: a title, and which curves lie in it."""

from __future__ import annotations

from typing import NamedTuple

LIMIT = "limit:"
"""Begins the name of a curve of :mod:`~lightning_rollout_is.callbacks.limits`."""
GROUPED = {
    "mismatch_k3_kl": "K3 by group",
    "mismatch_kl": "KL by group",
    "rollout_is_eff_sample_size": "Effective sample size by group",
    "rollout_is_mean": "Mean weight by group",
    "rollout_is_missing_fraction": "Missing log-probs by group",
}
"""Titles of the statistics that a module with groups has for each of them, as ``name/group``."""


class Lines(NamedTuple):
    """Curves in one chart. A run has the chart if it has the first of them, which a limit's always is."""

    title: str
    curves: tuple[str, ...]


class Bands(NamedTuple):
    """The same, each in a shaded band: (middle, lower end, upper end). No curve is the middle of two."""

    title: str
    series: tuple[tuple[str, str, str], ...]


Chart = Lines | Bands


def first_of(chart: Chart) -> str:
    """The curve without which there is no such chart."""
    return chart.curves[0] if isinstance(chart, Lines) else chart.series[0][0]


OVERVIEW: tuple[Chart, ...] = (
    Lines(
        "Values out of range (0: all is well)",
        (f"{LIMIT}values_to_watch", f"{LIMIT}values_unhealthy", "health_findings"),
    ),
    Lines("K3, nats a token (above the line: off-policy)", ("mismatch_k3_kl", f"{LIMIT}mismatch_k3_kl_healthy_high")),
    Lines(
        "Effective sample size (lines: 0.5, 0.3)",
        (
            "rollout_is_eff_sample_size",
            f"{LIMIT}rollout_is_eff_sample_size_healthy_low",
            f"{LIMIT}rollout_is_eff_sample_size_warning_low",
        ),
    ),
    Lines(
        "Vetoed, masked, missing (line: 0.1)",
        (
            "rollout_is_veto_fraction",
            "rollout_is_masked_fraction",
            "rollout_is_missing_fraction",
            f"{LIMIT}rollout_is_veto_fraction_warning_high",
        ),
    ),
    # TensorBoard puts bands after lines, the last one first.
    Bands(
        "Perplexity ratio (band: 0.9 to 1.1)",
        (("mismatch_ppl_ratio", f"{LIMIT}mismatch_ppl_ratio_healthy_low", f"{LIMIT}mismatch_ppl_ratio_healthy_high"),),
    ),
    Bands(
        "Mean weight (band: 0.5 to 2)",
        (("rollout_is_mean", f"{LIMIT}rollout_is_mean_warning_low", f"{LIMIT}rollout_is_mean_warning_high"),),
    ),
    Bands(
        "KL ± 2 standard errors, and its healthy band",
        (
            ("mismatch_kl", f"{LIMIT}mismatch_kl_minus_2_stderr", f"{LIMIT}mismatch_kl_plus_2_stderr"),
            (f"{LIMIT}mismatch_kl_ideal", f"{LIMIT}mismatch_kl_healthy_low", f"{LIMIT}mismatch_kl_healthy_high"),
        ),
    ),
    Bands(
        "Log ratio: p1 to p99, and its healthy band",
        (
            ("mismatch_log_ratio_p50", "mismatch_log_ratio_p01", "mismatch_log_ratio_p99"),
            (
                f"{LIMIT}mismatch_log_ratio_ideal",
                f"{LIMIT}mismatch_log_ratio_p50_healthy_low",
                f"{LIMIT}mismatch_log_ratio_p50_healthy_high",
            ),
        ),
    ),
)
"""What tells whether a run is off-policy, and since when."""

DETAILS: tuple[Chart, ...] = (
    Lines(
        "Effective sample size, applied (line: 0.5)",
        ("rollout_is_applied_eff_sample_size", f"{LIMIT}rollout_is_eff_sample_size_healthy_low"),
    ),
    Lines(
        "|Log ratio|: first, fifth, last tenth of a response",
        (
            "mismatch_abs_log_ratio_decile_01",
            "mismatch_abs_log_ratio_decile_05",
            "mismatch_abs_log_ratio_decile_10",
            f"{LIMIT}mismatch_abs_log_ratio_decile_01_healthy_high",
        ),
    ),
    Lines("|p - q| of sampled tokens, mean", ("mismatch_probs_diff_mean",)),
    Lines("|p - q| of sampled tokens, largest", ("mismatch_probs_diff_max",)),
    Lines("Chi-square, tokens", ("mismatch_chi2_token",)),
    Lines("Confident disagreement, share of tokens", ("mismatch_confident_disagreement_fraction",)),
    Lines("Importance weight: smallest, largest", ("rollout_is_min", "rollout_is_max")),
    Bands(
        "Log ratio: p5 to p95, and p1 to p99",
        (
            ("mismatch_log_ratio_p50", "mismatch_log_ratio_p05", "mismatch_log_ratio_p95"),
            (f"{LIMIT}mismatch_log_ratio_ideal", "mismatch_log_ratio_p01", "mismatch_log_ratio_p99"),
        ),
    ),
    Bands(
        "Applied weight, mean (band: 0.5 to 2)",
        (("rollout_is_applied_mean", f"{LIMIT}rollout_is_mean_warning_low", f"{LIMIT}rollout_is_mean_warning_high"),),
    ),
)
"""What helps to find out why."""
