"""Core values of each group are those of a batch that holds that group alone."""

import math
import warnings
from typing import Any

import pytest
import torch

from lightning_rollout_is import RolloutISMetrics
from tests.metrics.test_splits import random_batch, select
from tests.reference import oracle
from tests.reference.batches import LAYOUTS, Batch, batch_of_ratios, lay_out
from tests.reference.metric_values import TOKEN, config_of, values

CORE = (
    "rollout_is_mean",
    "rollout_is_eff_sample_size",
    "mismatch_kl",
    "mismatch_k3_kl",
    "rollout_is_missing_fraction",
)
NAMES = ["math", "code", "web"]
MEMBERS = {"math": [0, 2, 5], "code": [1, 4], "web": [3]}
OF_SEQUENCE = ["math", "code", "math", "web", "code", "math"]


def mismatched() -> Batch:
    batch = random_batch()
    batch.mask[0] = [1.0] * 9
    batch.rollout[1][2] = math.nan
    batch.mask[1][2] = 1.0
    batch.old[4] = [value - 1.0 for value in batch.old[4]]
    return batch


def metric_of(batch: Batch, groups: Any, layout: str = "right", **settings: Any) -> RolloutISMetrics:
    metric = RolloutISMetrics(config_of(TOKEN | settings), groups=NAMES)
    tensors = lay_out(batch, layout)
    metric.update(*tensors[:3], tensors.cu_seqlens, groups)
    return metric


def expected(batch: Batch, **settings: Any) -> dict[str, float]:
    found = oracle.metrics(*batch, **(TOKEN | settings))
    return {name: found[name] for name in CORE}


def of_group(found: dict[str, float], group: str) -> dict[str, float]:
    return {name: found[f"{name}/{group}"] for name in CORE}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_groups_of_sequences(level: str, layout: str) -> None:
    batch = mismatched()
    found = values(metric_of(batch, OF_SEQUENCE, layout, level=level))
    for group, rows in MEMBERS.items():
        assert of_group(found, group) == pytest.approx(expected(select(batch, rows), level=level), rel=1e-10)
    assert found["rollout_is_ungrouped_fraction"] == 0.0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups_of_tokens(layout: str) -> None:
    """Two turns of one conversation."""
    batch = mismatched()
    turns = torch.zeros(6, 9, dtype=torch.int64)
    turns[:, 4:] = 1
    ids = turns.flatten() if layout == "packed" else turns
    found = values(metric_of(batch, ids, layout))
    for group, columns in (("math", slice(None, 4)), ("code", slice(4, None))):
        part = Batch(*([row[columns] for row in rows] for rows in batch))
        assert of_group(found, group) == pytest.approx(expected(part), rel=1e-10)
    assert math.isnan(found["mismatch_kl/web"])


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_one_number_for_each_token_of_a_sequence_is_one_for_the_sequence(level: str) -> None:
    numbers = torch.tensor([NAMES.index(name) for name in OF_SEQUENCE])
    each = numbers.unsqueeze(-1).expand(6, 9)
    settings = {"level": level}
    by_token = values(metric_of(mismatched(), each, **settings))
    assert by_token == pytest.approx(values(metric_of(mismatched(), numbers, **settings)), rel=1e-9, nan_ok=True)


def test_micro_batches_add_up() -> None:
    batch = mismatched()
    whole = metric_of(batch, OF_SEQUENCE)
    first = metric_of(select(batch, [0, 1]), OF_SEQUENCE[:2])
    first.merge_state(metric_of(select(batch, [2, 3, 4, 5]), OF_SEQUENCE[2:]))
    assert values(first) == pytest.approx(values(whole), rel=1e-12)


def test_what_belongs_to_no_group_is_counted() -> None:
    batch = batch_of_ratios([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    found = values(metric_of(batch, torch.tensor([0, -1, 17])))
    assert found["rollout_is_mean/math"] == 1.0
    assert found["rollout_is_ungrouped_fraction"] == pytest.approx(2 / 3)
    assert values(metric_of(batch, None))["rollout_is_ungrouped_fraction"] == 1.0


def test_a_name_that_is_not_declared_is_warned_of_once() -> None:
    batch = batch_of_ratios([[1.0], [2.0]])
    metric = RolloutISMetrics(config_of(TOKEN), groups=NAMES)
    with pytest.warns(UserWarning, match="group 'maths' is not one of the declared ones \\(math, code, web\\)"):
        metric.update(*lay_out(batch)[:3], groups=["maths", "math"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.update(*lay_out(batch)[:3], groups=["maths", "math"])
    assert values(metric)["rollout_is_ungrouped_fraction"] == 0.5


def test_an_impossible_token_spoils_its_own_group_alone() -> None:
    batch = batch_of_ratios([[1.0, 1.0], [2.0, 2.0]])
    batch.old[0][0] = -math.inf
    found = values(metric_of(batch, ["math", "code"]))
    assert found["mismatch_kl/math"] == math.inf
    assert found["mismatch_kl/code"] == pytest.approx(-math.log(2.0))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("math", "groups is the name 'math'; it must be a list"),
        (torch.zeros(3), "groups has dtype torch.float32; it must be an integer tensor"),
        (torch.zeros(5, dtype=torch.int64), "groups has shape \\(5,\\); give one for each sequence, \\(2,\\)"),
        (["math"], "groups has shape \\(1,\\)"),
    ],
)
@pytest.mark.plain
def test_groups_that_do_not_fit_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric_of(batch_of_ratios([[1.0], [2.0]]), groups)


@pytest.mark.plain
def test_groups_without_a_declaration_are_refused() -> None:
    metric = RolloutISMetrics(config_of(TOKEN))
    with pytest.raises(ValueError, match="groups are given and none are declared"):
        metric.update(*lay_out(batch_of_ratios([[1.0]]))[:3], groups=["math"])


@pytest.mark.plain
@pytest.mark.parametrize("names", ["math", ["math", "math"], ["math", ""], [1]])
def test_bad_declarations_are_refused(names: Any) -> None:
    with pytest.raises(ValueError, match="groups = "):
        RolloutISMetrics(config_of(TOKEN), groups=names)


@pytest.mark.parametrize("by_token", [False, True])
def test_a_malformed_mask_spoils_its_own_group_alone(by_token: bool) -> None:
    tensors = lay_out(batch_of_ratios([[1.0, 1.0], [2.0, 2.0]]))
    mask = tensors.mask.double()
    mask[0, 1] = 0.5
    ids = torch.tensor([0, 1])
    metric = RolloutISMetrics(config_of(TOKEN), groups=NAMES)
    metric.update(*tensors[:2], mask, groups=ids.unsqueeze(-1).expand(2, 2) if by_token else ids)
    found = values(metric)
    assert all(math.isnan(found[f"{name}/math"]) for name in CORE)
    # Group columns of tokens are of whole sequences, whose faults are in each.
    assert by_token or of_group(found, "code")["mismatch_kl"] == pytest.approx(-math.log(2.0))


def test_a_missing_token_counts_in_no_share() -> None:
    batch = batch_of_ratios([[1.0, 1.0, 1.0], [2.0]])
    batch.rollout[0][:2] = [math.nan, math.nan]
    found = values(metric_of(batch, torch.tensor([0, -1])))
    assert found["rollout_is_ungrouped_fraction"] == 0.5
    assert found["rollout_is_missing_fraction/math"] == pytest.approx(2 / 3)


@pytest.mark.plain
def test_groups_do_not_hide_what_is_wrong_with_a_log_prob() -> None:
    metric = RolloutISMetrics(config_of(TOKEN), groups=NAMES)
    with pytest.raises(ValueError, match=r"old_log_prob is a NoneType; it must be a torch\.Tensor"):
        metric.update(None, torch.zeros(1, 1), torch.ones(1, 1), groups=["math"])  # type: ignore[arg-type]
