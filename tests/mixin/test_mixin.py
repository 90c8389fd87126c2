"""What the mixin does to a loss, in a training step and on its own."""

import copy
import math
import pickle

import lightning
import pytest
import torch

from lightning_rollout_is import RolloutISConfig, RolloutISMixin, importance_weights
from tests.trainer.policy import ALGORITHM, Policy, PolicyWithMixinLast, rollout_batch
from tests.trainer.runs import curves, fit

BATCH = rollout_batch(3)
INPUTS = (BATCH["old_log_prob"], BATCH["rollout_log_prob"], BATCH["response_mask"])
MONITOR = {**ALGORITHM, "rollout_is": False}
OFF = {"rollout_is_threshold": None}


def weights_of(algorithm=ALGORITHM):
    return importance_weights(*INPUTS, **RolloutISConfig.from_mapping(algorithm).weight_options).weight


@pytest.mark.parametrize("policy", [Policy, PolicyWithMixinLast])
@pytest.mark.parametrize("automatic", [True, False])
def test_a_training_step_moves_the_parameters_by_the_weighted_gradient(tmp_path, policy, automatic):
    module = policy(automatic=automatic)
    fit(module, [BATCH], tmp_path)
    mask = BATCH["response_mask"].bool()
    logits = torch.zeros(len(module.logits), dtype=torch.float64, requires_grad=True)
    log_prob = logits.log_softmax(0)[BATCH["token_ids"]]
    (-(log_prob * weights_of()) * mask).sum().div(mask.sum()).backward()
    assert torch.allclose(module.logits.detach().double(), -0.1 * logits.grad, atol=1e-6)
    assert weights_of()[mask].unique().numel() > 3  # so that a forgotten weight would show


def test_monitor_and_off_leave_the_loss_alone():
    loss = torch.rand(BATCH["old_log_prob"].shape)
    for algorithm in (MONITOR, OFF):
        assert Policy(algorithm).rollout_is_loss(loss, *INPUTS) is loss
        assert torch.equal(Policy(algorithm).rollout_is_weights(*INPUTS), BATCH["response_mask"].float())


def test_a_malformed_mask_does_not_touch_a_loss_that_is_only_monitored():
    mask = BATCH["response_mask"] * 0.5
    module = Policy(MONITOR)
    assert torch.equal(module.rollout_is_weights(*INPUTS[:2], mask), BATCH["response_mask"].float())
    assert module.rollout_is_metrics.compute()["mismatch/mismatch_kl"].isnan()


def test_monitor_records_and_off_does_not():
    monitor, off = Policy(MONITOR), Policy(OFF)
    for module in (monitor, off):
        module.rollout_is_loss(torch.zeros(BATCH["old_log_prob"].shape), *INPUTS)
    assert off.rollout_is_metrics is None
    assert monitor.rollout_is_metrics.compute()["mismatch/mismatch_k3_kl"] > 0


def test_loss_is_recorded_once():
    module = Policy()
    module.rollout_is_loss(torch.zeros(BATCH["old_log_prob"].shape), *INPUTS)
    (weight_sums, _), *_ = module.rollout_is_metrics.packing.unpack(module.rollout_is_metrics.packed)
    assert weight_sums.tokens == BATCH["response_mask"].sum()


def test_weights_carry_no_gradient_and_the_loss_carries_its_own():
    old = BATCH["old_log_prob"].clone().requires_grad_()
    loss = Policy().rollout_is_loss(-old, old, *INPUTS[1:])
    loss.sum().backward()
    assert torch.equal(old.grad, -weights_of())


def test_an_infinite_loss_of_a_rejected_token_reaches_neither_value_nor_gradient():
    loss = torch.rand(BATCH["old_log_prob"].shape, requires_grad=True)
    rejected = weights_of() == 0
    assert rejected.any()
    weighted = Policy().rollout_is_loss(loss.masked_fill(rejected, math.inf), *INPUTS)
    weighted.sum().backward()
    assert torch.equal(weighted == 0, rejected)
    assert loss.grad.isfinite().all()


def test_packed_equals_padded():
    lengths = torch.tensor([4, 2, 5])
    inside = torch.arange(5) < lengths[:, None]
    padded = [x * inside for x in INPUTS]
    cu_seqlens = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int()
    loss = torch.rand(inside.shape)
    algorithm = {**ALGORITHM, "rollout_is_level": "sequence"}
    rows, flat = Policy(algorithm), Policy(algorithm)
    by_row = rows.rollout_is_loss(loss, *padded)[inside]
    by_token = flat.rollout_is_loss(loss[inside], *[x[inside] for x in padded], cu_seqlens=cu_seqlens)
    assert torch.equal(by_row, by_token)
    assert torch.allclose(rows.rollout_is_metrics.packed, flat.rollout_is_metrics.packed)


@pytest.mark.parametrize("given", [RolloutISConfig(2.0, True, None, "token", "mask"), ALGORITHM])
def test_settings_come_as_config_or_mapping(given):
    assert Policy(given).rollout_is_config == RolloutISConfig.from_mapping(ALGORITHM)


def test_settings_can_be_changed():
    module = Policy(OFF)
    module.configure_rollout_is(ALGORITHM)
    assert module.rollout_is_metrics in list(module.children())
    module.configure_rollout_is(OFF)
    assert module.rollout_is_metrics is None


def test_unconfigured_says_what_to_call():
    class Forgotten(RolloutISMixin, lightning.LightningModule):
        pass

    with pytest.raises(RuntimeError, match=r"Forgotten has no .* settings yet; call self.configure_rollout_is"):
        Forgotten().rollout_is_weights(*INPUTS)


def test_configured_too_early_says_so():
    class Early(RolloutISMixin, lightning.LightningModule):
        def __init__(self):
            self.configure_rollout_is(ALGORITHM)

    with pytest.raises(RuntimeError, match=r"before super\(\).__init__\(\); call it after"):
        Early()


def test_nothing_enters_the_checkpoint_and_the_module_copies(tmp_path):
    module = Policy()
    fit(module, [BATCH], tmp_path)
    assert list(module.state_dict()) == ["logits"]
    metrics = module.rollout_is_metrics
    assert str(pickle.loads(pickle.dumps(metrics)).compute()) == str(metrics.compute())  # NaN is not equal to itself
    assert copy.deepcopy(module).rollout_is_config == module.rollout_is_config


def test_mean_weight_written_is_the_mean_of_the_weights(tmp_path):
    fit(Policy({"rollout_is_threshold": 4.0}), [BATCH], tmp_path)
    ratio = (INPUTS[0] - INPUTS[1]).double().exp()[INPUTS[2].bool()]
    assert curves(tmp_path)["mismatch/rollout_is_mean"][0][1] == pytest.approx(ratio.mean().item(), rel=1e-6)


@pytest.mark.plain
class TestDoor:
    """Bad input is refused in the package's own words."""

    @pytest.mark.parametrize("position", [0, 1])
    @pytest.mark.parametrize("given", [None, [[0.0]]])
    def test_a_missing_log_prob_names_itself_and_the_option(self, position, given):
        inputs = [given if i == position else x for i, x in enumerate(INPUTS)]
        name = ("old_log_prob", "rollout_log_prob")[position]
        with pytest.raises(ValueError, match=rf"{name} is (None|list).*calculate_log_probs: true"):
            Policy().rollout_is_weights(*inputs)

    def test_shapes_that_would_broadcast_are_refused(self):
        for loss, old, message in (
            (torch.ones(3, 1), INPUTS[0], r"token_loss \(3, 1\) and response_mask \(3, 5\)"),
            (torch.ones(3, 5), INPUTS[0][:, :1], r"old_log_prob \(3, 1\), rollout_log_prob \(3, 5\)"),
        ):
            with pytest.raises(ValueError, match=message):
                Policy().rollout_is_loss(loss, old, *INPUTS[1:])

    def test_integer_log_probs_are_refused(self):
        with pytest.raises(ValueError, match=r"old_log_prob has dtype torch.int64; log-probs are floating point"):
            Policy().rollout_is_weights(INPUTS[0].long(), *INPUTS[1:])

    def test_packed_tokens_need_their_boundaries(self):
        with pytest.raises(ValueError, match=r"shape \(15,\) without cu_seqlens"):
            Policy().rollout_is_weights(*[x.flatten() for x in INPUTS])
