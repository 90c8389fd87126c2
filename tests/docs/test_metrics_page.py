"""The page of metrics names what is computed, all of it and nothing else."""

import re

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics
from lightning_rollout_is.healthy_ranges import RANGES
from tests.docs.pages import text

PERCENTS = ("01", "05", "50", "95", "99")
DECILES = tuple(f"{number:02d}" for number in range(1, 11))
DETAILS = {
    "rollout_is_applied_mean",
    "rollout_is_applied_eff_sample_size",
    "mismatch_chi2_token",
    "mismatch_chi2_seq",
    "mismatch_probs_diff_mean",
    "mismatch_probs_diff_max",
    "mismatch_kl_stderr",
    "rollout_is_mean_stderr",
    "mismatch_confident_disagreement_fraction",
    *(f"mismatch_log_ratio_p{percent}" for percent in PERCENTS),
    *(f"mismatch_{name}_decile_{number}" for name in ("abs_log_ratio", "k3_kl") for number in DECILES),
}
"""What a second pass over the tokens gives, where it is made."""


def listed():
    names = []
    for heading in re.findall(r"^### (`.*)$", text("metrics"), re.MULTILINE):
        names += re.findall(r"`(\w+)`", heading)
        if "_01` to `" in heading:
            stem = names.pop().removesuffix("_10")
            names += [f"{stem}_{number}" for number in DECILES[1:]]
    return names


def computed():
    return {
        name
        for mode in ("truncate", "mask")
        for name in RolloutISMetrics(RolloutISConfig(2.0, rollout_is_mode=mode), prefix="").values()
    }


def test_each_metric_once():
    assert len(listed()) == len(set(listed()))


def test_what_is_computed_is_listed_and_nothing_else():
    assert set(listed()) == computed() | DETAILS


def test_each_metric_has_its_limits_read_from_the_code():
    """Where several share a section, one of them stands for all, so they must have the same limits."""
    sections = re.split(r"^### ", text("metrics"), flags=re.MULTILINE)[1:]
    for section in sections:
        heading, _, body = section.partition("\n")
        (asked,) = re.findall(r"\{generated\} limits (\w+)\n", body)
        names = re.findall(r"`(\w+)`", heading)
        assert asked in names
        assert len({RANGES.get(name) for name in names}) == 1, heading
