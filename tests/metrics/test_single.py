"""Each metric that shows one value, alone and in a collection, against the metric that shows them all."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torchmetrics import Metric, MetricCollection

from lightning_rollout_is import (
    CatastrophicTokenFraction,
    EffectiveSampleSize,
    ImportanceWeightMax,
    ImportanceWeightMean,
    ImportanceWeightStd,
    MaskedFraction,
    MissingFraction,
    PerplexityRatio,
    RolloutISMetrics,
    RolloutKL,
    VetoFraction,
)
from tests.reference.batches import Batch, Tensors, batch_of_log_ratios, lay_out
from tests.reference.metric_values import TOKEN, config_of, update, values

NAN = float("nan")

SINGLE: dict[str, Callable[..., Metric]] = {
    "rollout_is_mean": ImportanceWeightMean,
    "rollout_is_std": ImportanceWeightStd,
    "rollout_is_max": ImportanceWeightMax,
    "rollout_is_eff_sample_size": EffectiveSampleSize,
    "rollout_is_veto_fraction": VetoFraction,
    "rollout_is_catastrophic_token_fraction": CatastrophicTokenFraction,
    "rollout_is_masked_fraction": MaskedFraction,
    "rollout_is_missing_fraction": MissingFraction,
    "mismatch_ppl_ratio": PerplexityRatio,
    "mismatch_kl": lambda config, **kwargs: RolloutKL(config, estimator="k1", **kwargs),
    "mismatch_k3_kl": lambda config, **kwargs: RolloutKL(config, estimator="k3", **kwargs),
}


def batch_with_everything() -> Tensors:
    """Weights on both sides of each threshold, a vetoed sequence, and a missing token."""
    log_ratios = [[0.1, 0.9, -0.9], [-12.0, 0.0, 0.3], [NAN, 0.2, -0.1], [0.01, -0.02, 5.0]]
    return lay_out(batch_of_log_ratios(log_ratios))


def equal_policies() -> Tensors:
    return lay_out(batch_of_log_ratios([[0.0, 0.0], [0.0, 0.0]]))


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("name", SINGLE)
def test_single_value_is_the_one_of_all(name: str, level: str) -> None:
    config = config_of(TOKEN | {"level": level})
    metric, every = SINGLE[name](config), RolloutISMetrics(config)
    for tensors in (batch_with_everything(), equal_policies()):
        update(metric, tensors)
        update(every, tensors)
    value = metric.compute()
    assert value.item() == values(every)[name]
    assert value.dtype == torch.float64
    assert value.shape == ()


@pytest.mark.parametrize("name", SINGLE)
def test_single_value_without_a_valid_token_is_nan(name: str) -> None:
    metric = SINGLE[name](config_of(TOKEN))
    update(metric, lay_out(Batch([[-1.0, NAN]], [[-1.0, -1.0]], [[0.0, 0.0]])))
    assert metric.compute().isnan()


@pytest.mark.parametrize("name", SINGLE)
def test_single_value_of_one_batch_and_of_all(name: str) -> None:
    """``forward`` returns the value of its batch, and the metric that of both."""
    config = config_of(TOKEN)
    metric = SINGLE[name](config)
    results = [metric(*tensors[:3]) for tensors in (equal_policies(), batch_with_everything())]
    for result, tensors in zip(results, (equal_policies(), batch_with_everything()), strict=True):
        alone = SINGLE[name](config)
        update(alone, tensors)
        assert result.item() == alone.compute().item()
    both = SINGLE[name](config)
    update(both, equal_policies())
    update(both, batch_with_everything())
    assert metric.compute().item() == both.compute().item()


@pytest.mark.plain
def test_unknown_estimator_is_named() -> None:
    with pytest.raises(ValueError, match=r"k2.*k1.*k3"):
        RolloutKL(config_of(TOKEN), estimator="k2")  # type: ignore[arg-type]


def collection(**kwargs: Any) -> tuple[MetricCollection, dict[str, dict[str, Any]]]:
    """Every single metric at every level and with two thresholds, each under a name of its own."""
    settings = {
        f"{level}, upper {index}, veto {veto}": TOKEN | {"level": level, "upper": upper, "veto": threshold}
        for level in ("token", "sequence", "geometric")
        for index, upper in enumerate((2.0, 1.1))
        for veto, threshold in (("on", 1e-4), ("off", None))
    }
    metrics = {f"{key}/{name}": SINGLE[name](config_of(settings[key])) for key in settings for name in SINGLE}
    return MetricCollection(metrics, **kwargs), settings


@pytest.mark.parametrize("use_forward", [False, True], ids=["update", "forward"])
def test_collection_never_takes_one_metric_for_another(use_forward: bool) -> None:
    """Equal policies come first: on them, metrics of different levels and thresholds have seen the same numbers."""
    metrics, settings = collection(compute_groups=True)
    for tensors in (equal_policies(), batch_with_everything()):
        (metrics if use_forward else metrics.update)(*tensors[:3])
    # `forward` alone forms no groups.
    assert use_forward or len(metrics.compute_groups) < len(metrics), "equal settings share a state"
    computed = metrics.compute()
    for key, chosen in settings.items():
        every = RolloutISMetrics(config_of(chosen))
        for tensors in (equal_policies(), batch_with_everything()):
            update(every, tensors)
        expected = values(every)
        for name in SINGLE:
            assert computed[f"{key}/{name}"].item() == expected[name], (key, name)


def test_collection_computes_afresh_after_each_update() -> None:
    metrics, _ = collection(compute_groups=True)
    metrics.update(*equal_policies()[:3])
    first = metrics.compute()
    metrics.update(*batch_with_everything()[:3])
    second = metrics.compute()
    assert all(second[name] != first[name] for name in first if name.startswith("token, upper 0, veto on/"))
    metrics.reset()
    metrics.update(*equal_policies()[:3])
    assert metrics.compute() == first


def test_collection_of_whole_sets() -> None:
    """Sets of different levels go side by side, told apart by their prefix."""
    levels = ("token", "sequence", "geometric")
    sets = {level: RolloutISMetrics(config_of(TOKEN | {"level": level}), prefix=f"{level}/") for level in levels}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = MetricCollection(sets, compute_groups=True)
        for tensors in (equal_policies(), batch_with_everything()):
            metrics.update(*tensors[:3])
        computed = metrics.compute()
    means = [computed[f"{level}/rollout_is_mean"].item() for level in levels]
    assert len(set(means)) == 3
