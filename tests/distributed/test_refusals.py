"""Input of one rank that is refused: the same words on every rank, soon, and nobody waits for ever."""

import logging
import re

import pytest
import torch

from tests.distributed.shares import BATCHES, batch
from tests.distributed.trainer_runs import run, train, train_sharded
from tests.trainer.policy import ALGORITHM, Policy
from tests.trainer.runs import curves, fit

pytestmark = pytest.mark.timeout(120)

GOOD = [batch(seed, rows=2, length=4) for seed in range(4)]
MONITOR = {**ALGORITHM, "rollout_is": False}
FAULTS = {
    "no rollout log-prob": (
        "rollout_log_prob",
        lambda x: None,
        "rollout_log_prob is not a tensor on at least one rank",
    ),
    "no training log-prob": ("old_log_prob", lambda x: None, "old_log_prob is not a tensor on at least one rank"),
    "a list": ("rollout_log_prob", lambda x: x.tolist(), "rollout_log_prob is not a tensor on at least one rank"),
    "another shape": ("rollout_log_prob", lambda x: x[:, :1], "shapes or dtypes do not fit on at least one rank"),
    "another dtype": ("old_log_prob", lambda x: x.long(), "shapes or dtypes do not fit on at least one rank"),
}


def spoilt(key, spoil, rank=1, position=1):
    """Shares of three ranks of which one has one bad batch."""
    shares = [list(GOOD) for _ in range(3)]
    shares[rank][position] = {**GOOD[position], key: spoil(GOOD[position][key])}
    return shares


def assert_all_raise(outcomes, message, started):
    errors = {error for _, error, _ in outcomes}
    assert len(errors) == 1
    assert re.search(message, errors.pop())
    assert [batches for batches, _, _ in outcomes] == [started] * 3


@pytest.mark.parametrize("fault", FAULTS)
def test_all_ranks_raise_what_one_refuses(ranks, fault):
    key, spoil, message = FAULTS[fault]
    assert_all_raise(ranks.call(train, spoilt(key, spoil)), message, started=2)


def test_all_shards_raise_what_one_refuses(ranks, tmp_path):
    key, spoil, message = FAULTS["no rollout log-prob"]
    assert_all_raise(ranks.call(train_sharded, spoilt(key, spoil), tmp_path, 3), message, started=2)


def test_the_message_names_the_option_and_the_remedy(ranks):
    (_, error, _), *_ = ranks.call(train, spoilt(*FAULTS["no rollout log-prob"][:2], rank=0))
    assert "rollout_is_threshold = 2 " in error
    assert "actor_rollout_ref.rollout.calculate_log_probs: true" in error
    assert "rollout_is_threshold: null" in error


@pytest.mark.parametrize(
    ("settings", "position", "started"),
    [
        ({"algorithm": MONITOR}, 1, 2),
        ({"automatic": False}, 1, 2),
        ({"accumulate_grad_batches": 2}, 0, 2),
        ({"accumulate_grad_batches": 2, "every": 2}, 1, 4),
        ({"every": 3}, 0, 3),
        ({"every": 100}, 0, 4),
        ({"every": 3}, 3, 4),
    ],
    ids=["monitor", "manual", "accumulation", "second step", "third step", "end", "end after a point"],
)
def test_a_fault_comes_out_with_the_next_point_and_is_never_lost(ranks, settings, position, started):
    key, spoil, message = FAULTS["no rollout log-prob"]
    shares = spoilt(key, spoil, position=position)
    assert_all_raise(ranks.call(train_with, shares, settings), message, started)


def train_with(rank, group, shares, settings):
    return train(rank, group, shares, **settings)


MALFORMED_MASK = "response_mask", lambda mask: mask * 0.5


def test_a_malformed_mask_of_one_rank_stops_all_where_weights_are_applied(ranks):
    outcomes = ranks.call(train, spoilt(*MALFORMED_MASK, rank=2))
    assert_all_raise(outcomes, r"response_mask holds values other than 0 and 1; .*\(rollout_is: true\)", started=2)


def test_a_malformed_mask_leaves_out_a_point_where_weights_are_monitored(ranks):
    outcomes = ranks.call(train_with, spoilt(*MALFORMED_MASK, rank=2), {"algorithm": MONITOR})
    for started, error, values in outcomes:
        assert (started, error) == (4, None)
        assert values[1] == values[0]  # as they were
        assert values[2] != values[1]
        assert values == outcomes[0][2]


def test_a_malformed_mask_stops_one_process_too(tmp_path):
    bad = {**GOOD[1], "response_mask": GOOD[1]["response_mask"] * 0.5}
    with pytest.raises(ValueError, match=r"response_mask holds values other than 0 and 1; .* last checkpoint"):
        fit(Policy(), [GOOD[0], bad], tmp_path)
    assert [step for step, _ in curves(tmp_path)["mismatch/rollout_is_mean"]] == [0]


def test_boundaries_that_do_not_fit_are_said_once_and_leave_out_their_points(tmp_path):
    class Packed(Policy):
        def loss_of(self, batch):
            tokens = [batch[key].flatten() for key in ("old_log_prob", "rollout_log_prob", "response_mask")]
            return self.rollout_is_loss(self.logits.sum().expand(8), *tokens, batch["cu_seqlens"]).sum()

    batches = [{**GOOD[0], "cu_seqlens": torch.tensor(ends)} for ends in ([0, 4, 8], [0, 4, 7], [0, 9], [0, 1, 8])]
    with pytest.warns(UserWarning, match="cu_seqlens does not fit its tokens; it must start with 0") as caught:
        fit(Packed(MONITOR), batches, tmp_path)
    assert sum("cu_seqlens" in str(warning.message) for warning in caught) == 1
    written = curves(tmp_path)
    for tag in [tag for tag in written if tag.startswith("mismatch/")]:
        steps = [step for step, _ in written[tag]]
        # Short responses leave some tenths of the profile empty.
        assert steps == [0, 3] or ("decile" in tag and set(steps) < {0, 3}), tag


def refused_under_a_callback(rank, group, algorithm):
    module, messages = Policy(algorithm), []
    module.rollout_is_defers = True
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("lightning_rollout_is.mixin").addHandler(handler)
    one = GOOD[0]
    loss = torch.full((2, 4), torch.inf, requires_grad=True)
    weighted = module.rollout_is_loss(loss, one["old_log_prob"], None, one["response_mask"])
    weights = module.rollout_is_weights(one["old_log_prob"][:1], one["rollout_log_prob"], one["response_mask"])
    weighted.sum().backward()
    return weighted.tolist(), loss.grad.tolist(), weights.tolist(), messages


def test_a_refused_batch_adds_nothing_to_the_loss_and_its_rank_says_why(ranks):
    for rank, (loss, gradient, weights, messages) in enumerate(ranks.call(refused_under_a_callback, ALGORITHM)):
        assert loss == gradient == weights == [[0.0] * 4] * 2
        assert messages[0].startswith(f"rank {rank} refused a batch: rollout_log_prob is None")
        assert "old_log_prob (1, 4), rollout_log_prob (2, 4)" in messages[1]


def test_a_refused_batch_leaves_a_monitored_loss_alone(ranks):
    mask = GOOD[0]["response_mask"].float().tolist()
    for loss, _, weights, _ in ranks.call(refused_under_a_callback, MONITOR):
        assert loss == [[float("inf")] * 4] * 2
        assert weights == mask


def refused_at_once(rank, group, inputs):
    with pytest.raises(ValueError, match="rollout_log_prob is None") as refused:
        Policy().rollout_is_weights(*inputs)
    return str(refused.value)


def test_without_a_callback_it_is_raised_at_once(ranks):
    inputs = BATCHES[0]["old_log_prob"], None, BATCHES[0]["response_mask"]
    assert len(set(ranks.call(refused_at_once, inputs))) == 1


def refused_after_training(rank, group, shares):
    module = Policy()
    run(module, shares[rank], None)
    module.trainer = None  # on with a loop of the user's own
    with pytest.raises(ValueError, match="rollout_log_prob is None"):
        module.rollout_is_weights(GOOD[0]["old_log_prob"], None, GOOD[0]["response_mask"])


@pytest.mark.parametrize("shares", [[GOOD] * 3, spoilt(*FAULTS["no rollout log-prob"][:2])], ids=["ended", "stopped"])
def test_once_training_is_over_it_is_raised_at_once(ranks, shares):
    ranks.call(refused_after_training, shares)


def refused_without_a_mask(rank, group):
    module = Policy()
    module.rollout_is_defers = True
    with pytest.raises(ValueError, match="response_mask is a NoneType"):
        module.rollout_is_weights(GOOD[0]["old_log_prob"], GOOD[0]["rollout_log_prob"], None)


def test_what_could_not_go_on_anyway_is_raised_at_once(ranks):
    ranks.call(refused_without_a_mask)
