"""Log-probs that pass every check of shape and are not meant: said once, and never of sound ones."""

import pytest
import torch

from tests.trainer.policy import Policy, rollout_batch
from tests.trainer.runs import fit

BATCHES = [rollout_batch(seed, rows=4, length=40, mismatch=0.05) for seed in range(6)]


def shifted(batch):
    rolled = batch["old_log_prob"].roll(1, dims=1) + 0.01
    return {**batch, "rollout_log_prob": rolled, "response_mask": torch.ones_like(batch["response_mask"])}


def test_a_shift_by_one_is_warned_of_once(tmp_path):
    with pytest.warns(UserWarning, match="fits old_log_prob much better when it is shifted by one token") as caught:
        fit(Policy(), [shifted(batch) for batch in BATCHES], tmp_path)
    assert len([warning for warning in caught if "shifted by one token" in str(warning.message)]) == 1


def test_one_bad_batch_among_the_first_is_enough_and_later_ones_are_not_looked_at(tmp_path):
    with pytest.warns(UserWarning, match="shifted by one token"):
        fit(Policy(), [*BATCHES[:3], shifted(BATCHES[3])], tmp_path / "fourth")
    fit(Policy(), [*BATCHES[:4], shifted(BATCHES[4])], tmp_path / "fifth")


def test_packed_tokens_are_looked_at_too(tmp_path):
    module, batch = Policy(), shifted(BATCHES[0])
    flat = [batch[key].flatten() for key in ("old_log_prob", "rollout_log_prob", "response_mask")]
    module.rollout_is_weights(*flat, torch.arange(0, 161, 40, dtype=torch.int32))
    assert module.rollout_is_first_look.unread() == [True]
    assert module.rollout_is_first_look.unread() == []  # what was read is not read again


def test_sound_log_probs_are_passed_over_in_silence(tmp_path):
    fit(Policy(), BATCHES, tmp_path)


def test_the_same_tensor_twice():
    old, mask = BATCHES[0]["old_log_prob"], BATCHES[0]["response_mask"]
    module = Policy()
    with pytest.warns(UserWarning, match="the same tensor, so that every weight is 1"):
        module.rollout_is_weights(old, old, mask)
    module.rollout_is_weights(old, old, mask)  # said once
    module.configure_rollout_is({"rollout_is_threshold": 2.0})
    module.rollout_is_weights(old, old.clone(), mask)  # equal policies are no fault


@pytest.mark.parametrize(("dtype", "error"), [(torch.bfloat16, "0.031"), (torch.float16, "0.0039")])
@pytest.mark.parametrize("position", [0, 1])
def test_low_precision_says_what_it_costs(dtype, error, position):
    inputs = [BATCHES[0][key] for key in ("old_log_prob", "rollout_log_prob", "response_mask")]
    assert abs(torch.tensor(-10.02, dtype=dtype).item() + 10.02) <= float(error)
    inputs[position] = inputs[position].to(dtype)
    name = ("old_log_prob", "rollout_log_prob")[position]
    with pytest.warns(UserWarning, match=f"^{name} is {dtype}, which rounds a log-prob of -10 by up to {error}"):
        Policy().rollout_is_weights(*inputs)
