"""What holds of weights and metrics whatever goes in."""

import math

import torch
from torch import Tensor

from lightning_rollout_is import RolloutISMetrics, importance_weights
from tests.fuzz.cases import Group
from tests.reference.metric_values import config_of

Values = dict[str, Tensor]

# Float32 weights against float64 extremes; a mean of float32 deviations from 1 has an absolute error of its own.
RELATIVE, ABSOLUTE = 1e-6, 1e-7
SMALLEST_WEIGHT = math.exp(-20.0)
# A moment about 1 of weights near exp(20) keeps half of its digits.
HALF_OF_THE_DIGITS = 1e-7
# Only a sampled token that is impossible under the training policy makes these infinite.
MAY_BE_INFINITE = {
    "mismatch_training_log_ppl",
    "mismatch_log_ppl_diff",
    "mismatch_log_ppl_abs_diff",
    "mismatch_log_ppl_diff_max",
    "mismatch_log_ppl_diff_min",
    "mismatch_kl",
    "mismatch_k3_kl",
}
NEVER_NEGATIVE = ("_std", "_ppl_ratio", "_training_ppl", "_rollout_ppl", "abs_diff", "deviation", "k3_kl")
ORDERED = (
    ("rollout_is_min", "rollout_is_mean", "rollout_is_max"),
    ("rollout_is_seq_min", "rollout_is_seq_mean", "rollout_is_seq_max"),
    ("mismatch_log_ppl_diff_min", "mismatch_log_ppl_diff", "mismatch_log_ppl_diff_max"),
)


class Measured:
    """The metrics of every case of a group, (cases,) each, however its tensors are cut."""

    def __init__(self, group: Group) -> None:
        self.settings = group.settings
        self.metric = RolloutISMetrics(config_of(group.settings), prefix="")
        self.packing = self.metric.packing

    def weigh(self, *tensors: Tensor, cu_seqlens: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Packed statistics and weights."""

        def one(*case: Tensor) -> tuple[Tensor, Tensor]:
            weights = importance_weights(*case, cu_seqlens=cu_seqlens, **self.settings)
            return self.packing.pack(weights), weights.weight

        return torch.vmap(one)(*tensors)

    def values(self, *vectors: Tensor) -> Values:
        """After merging the statistics of several parts."""
        merged = torch.vmap(self.packing.merge)(torch.stack(vectors, 1))
        return torch.vmap(self.packing.compute)(merged)


def check(group: Group) -> None:
    """Every invariant of every case of the group; where one fails, the case at fault is shown."""
    try:
        check_together(group)
    except AssertionError as error:
        alone = next(filter(fails, group.each()), "no case fails by itself")
        raise AssertionError(f"{error}\n{alone}") from error


def fails(group: Group) -> bool:
    try:
        check_together(group)
    except AssertionError:
        return True
    return False


def check_together(group: Group) -> None:
    measured = Measured(group)
    vectors, weight = measured.weigh(*group.tensors)
    values = measured.values(vectors)
    check_weights(group, weight)
    check_ranges(group, values)
    check_relations(group, measured, values, weight)
    measured.metric.update(*(tensor[0] for tensor in group.tensors))
    in_the_metric = {name: value[None] for name, value in measured.metric.compute().items()}
    assert_same(in_the_metric, {name: value[:1] for name, value in values.items()}, group, "the metric itself")


def check_weights(group: Group, weight: Tensor) -> None:
    lower, upper = group.bounds
    assert weight.shape == group.mask.shape
    assert not weight.requires_grad
    assert weight.isfinite().all()
    assert ((weight >= 0) & (weight <= upper * (1 + RELATIVE))).all()
    assert not weight[~usable(group)[0]].any()
    if group.settings["mode"] == "mask":
        assert ((weight == 0) | (weight >= lower * (1 - RELATIVE))).all()


def check_ranges(group: Group, values: Values) -> None:
    valid, impossible = (tokens.flatten(1).any(1) for tokens in usable(group))
    inside = (group.mask != 0).flatten(1).any(1)
    for name, value in values.items():
        defined = inside if name == "rollout_is_missing_fraction" else valid
        assert torch.equal(value.isnan(), ~defined), name
        infinite = impossible & (value == math.inf) if name in MAY_BE_INFINITE else torch.zeros_like(valid)
        assert (value.isfinite() | infinite | ~defined).all(), (name, value)
        if "fraction" in name:
            assert ((value >= 0.0) & (value <= 1.0) | ~defined).all(), (name, value)
        if name.endswith(NEVER_NEGATIVE):
            assert ((value >= 0.0) | ~defined).all(), (name, value)
    size = values["rollout_is_eff_sample_size"]
    assert ((size > 0.0) & (size <= 1.0) | ~valid).all(), size
    lower, upper = group.bounds
    assert ((values["rollout_is_std"] <= (upper - lower) / 2 + HALF_OF_THE_DIGITS * upper) | ~valid).all()
    for low, mean, high in ORDERED:
        # Extremes of sequences are not clamped below, their mean is.
        slack = ABSOLUTE + (SMALLEST_WEIGHT if mean == "rollout_is_mean" else 0.0)
        assert at_most(values[low], values[mean], slack, valid), (mean, values[low], values[mean])
        assert at_most(values[mean], values[high], slack, valid), (mean, values[mean], values[high])


def at_most(small: Tensor, large: Tensor, slack: float, defined: Tensor) -> bool:
    return bool(((small <= large + RELATIVE * large.abs() + slack) | ~defined).all())


def usable(group: Group) -> tuple[Tensor, Tensor]:
    """Which tokens count, and which of them are impossible under the training policy."""
    known = group.rollout.isfinite() & (group.rollout.float() > -9984) & ~group.old.isnan() & (group.old != math.inf)
    valid = (group.mask != 0) & known
    return valid, valid & (group.old == -math.inf)


def check_relations(group: Group, measured: Measured, whole: Values, weight: Tensor) -> None:
    part = torch.tensor(group.part, dtype=torch.bool)
    two = [measured.weigh(*(tensor[:, rows] for tensor in group.tensors))[0] for rows in (part, ~part)]
    flipped, flipped_weight = measured.weigh(*(tensor.flip(1) for tensor in group.tensors))
    padded, padded_weight = measured.weigh(*with_junk(group))
    rows, length = group.mask.shape[1:]
    boundaries = torch.arange(rows + 1, dtype=torch.int32) * length
    packed, packed_weight = measured.weigh(*(tensor.flatten(1) for tensor in group.tensors), cu_seqlens=boundaries)
    assert_same(measured.values(*two), whole, group, "two micro-batches")
    assert_same(measured.values(flipped), whole, group, "rows in another order")
    assert_same(measured.values(padded), whole, group, "padding, and junk outside the mask")
    assert_same(measured.values(packed), whole, group, "packed")
    for again in (flipped_weight.flip(1), padded_weight[..., 2:], packed_weight.view(weight.shape)):
        torch.testing.assert_close(again, weight, rtol=RELATIVE, atol=0.0)


def with_junk(group: Group) -> tuple[Tensor, Tensor, Tensor]:
    """Two more columns on the left, and NaN or inf in every position outside the mask."""
    outside = group.mask == 0
    old, rollout = group.old.masked_fill(outside, math.nan), group.rollout.masked_fill(outside, math.inf)
    pad = torch.nn.functional.pad
    return pad(old, (2, 0), value=math.nan), pad(rollout, (2, 0), value=-math.inf), pad(group.mask, (2, 0))


def assert_same(computed: Values, expected: Values, group: Group, variant: str) -> None:
    assert computed.keys() == expected.keys()
    # Float32 arithmetic on a vector and on its remainder may differ by a unit in the last place.
    relative = 1e-12 if torch.float64 in (group.old.dtype, group.rollout.dtype) else RELATIVE
    magnitudes = [tensor.double().nan_to_num(0.0, 0.0, 0.0).abs() for tensor in group.tensors]
    scale = max((tensor.max().item() for tensor in magnitudes if tensor.numel()), default=0.0)
    for name, value in expected.items():
        tolerance = relative * (1.0 + value.abs()) + 1e-14 * scale * name.startswith("mismatch")
        if name.endswith("_std"):
            largest = expected["rollout_is_seq_max" if "seq" in name else "rollout_is_max"]
            tolerance = (HALF_OF_THE_DIGITS + relative) * largest.clamp(min=1.0)
        if name.endswith("eff_sample_size"):
            # Moments are kept about 1: weights that are all near 0 leave few digits of their own square.
            tolerance = tolerance + (1e-15 + relative * 1e-2) / max(group.bounds[0], SMALLEST_WEIGHT) ** 2
        close = (value == computed[name]) | ((value - computed[name]).abs() <= tolerance)
        assert (close | (value.isnan() & computed[name].isnan())).all(), (variant, name, computed[name], value)
