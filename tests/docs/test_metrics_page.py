"""The page of metrics names what is computed, all of it and nothing else."""

import re

from extensions import health

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics
from tests.docs.pages import text

DECILES = tuple(f"{number:02d}" for number in range(1, 11))


def listed():
    names = []
    for heading in re.findall(r"^### (`.*)$", text("metrics"), re.MULTILINE):
        names += re.findall(r"`(\w+)`", heading)
        if "_01` to `" in heading:
            stem = names.pop().removesuffix("_10")
            names += [f"{stem}_{number}" for number in DECILES[1:]]
    return names


def computed():
    """Under either mode, with all that can be asked for; a group has the names that the whole has."""
    names = set()
    for mode in ("truncate", "mask"):
        config = RolloutISConfig(2.0, rollout_is_mode=mode)
        names |= RolloutISMetrics(config, prefix="", details=True, groups=("math",)).values().keys()
    return {name.partition("/")[0] for name in names}


def test_each_metric_once():
    assert len(listed()) == len(set(listed()))


def test_what_is_computed_is_listed_and_nothing_else():
    assert set(listed()) == computed()


def test_each_metric_has_its_limits_read_from_the_code():
    """Where several share a section, one of them stands for all, so they must have the same limits."""
    sections = re.split(r"^### ", text("metrics"), flags=re.MULTILINE)[1:]
    for section in sections:
        heading, _, body = section.partition("\n")
        (asked,) = re.findall(r"\{generated\} limits (\w+)\n", body)
        names = re.findall(r"`(\w+)`", heading)
        assert asked in names
        assert len({health.limits(name) for name in names}) == 1, heading


def test_the_groups_have_the_metrics_that_the_page_says():
    metrics = RolloutISMetrics(RolloutISConfig(2.0), prefix="", groups=("math",))
    grouped = {name.partition("/")[0] for name in metrics.values() if "/" in name}
    section = text("metrics").partition("## Groups")[2].partition("###")[0]
    assert set(re.findall(r"`((?:rollout|mismatch)_\w+)`", section)) == grouped
