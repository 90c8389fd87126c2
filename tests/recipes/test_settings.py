"""Settings that are not allowed, tasks, and the shipped policy."""

import pytest
import torch
from lightning.pytorch.strategies import FSDPStrategy, SingleDeviceStrategy

from lightning_rollout_is.engines import CTranslate2Engine
from lightning_rollout_is.recipes.byte_tokens import BEGIN, END, PAD
from lightning_rollout_is.recipes.grpo import require_whole_weights
from lightning_rollout_is.recipes.policy import tiny_llama
from lightning_rollout_is.recipes.sampling import GroupSampler
from lightning_rollout_is.recipes.tasks import SortDigits, Task
from tests.recipes.tiny import tiny_module


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip_ratio_c": 0.5}, "clip_ratio_c = 0.5"),
        ({"clip_ratio_low": 2.0}, "clip_ratio_low = 2.0"),
        ({"loss_agg_mode": "mean"}, "'mean' is not allowed"),
        ({"ppo_epochs": 0}, "ppo_epochs = 0"),
        ({"ppo_mini_batch_size": 0}, "ppo_mini_batch_size = 0"),
        ({"algorithm": {"rollout_is_threshold": 2.0, "rollout_is_level": "tokens"}}, "'tokens' is not allowed"),
    ],
)
def test_a_setting_that_is_not_allowed_is_refused_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        tiny_module(**settings)


def test_a_temperature_of_zero_is_refused_at_once():
    module = tiny_module()
    module.sampler.temperature = 0.0
    with pytest.raises(ValueError, match=r"temperature = 0\.0"):
        type(module)(module.policy, module.sampler, {})


def test_strategies_that_shard_weights_are_refused():
    require_whole_weights(SingleDeviceStrategy("cpu"))
    with pytest.raises(ValueError, match=r"FSDPStrategy .*trainer=ddp"):
        require_whole_weights(FSDPStrategy())


def test_sorting_asks_for_every_length_and_scores_only_the_exact_answer():
    task = SortDigits(shortest=2, longest=4)
    items = task.sample(300, torch.Generator().manual_seed(0))
    assert isinstance(task, Task)
    assert {len(item.answer) for item in items} == {2, 3, 4}
    for item in items:
        assert item.prompt[-1] == ">"
        assert sorted(item.prompt[:-1]) == list(item.answer)
        assert task.score(item, item.answer) == 1.0
        assert task.score(item, item.answer + "0") == task.score(item, "") == 0.0
    assert task.sample(300, torch.Generator().manual_seed(0)) == items


@pytest.mark.parametrize(("shortest", "longest"), [(0, 3), (4, 3)])
def test_lengths_that_make_no_sense_are_refused(shortest, longest):
    with pytest.raises(ValueError, match=f"shortest = {shortest} and longest = {longest}"):
        SortDigits(shortest, longest)


def test_the_shipped_policy_sorts_about_two_in_five():
    policy = tiny_llama()
    assert (policy.config.pad_token_id, policy.config.bos_token_id, policy.config.eos_token_id) == (PAD, BEGIN, END)
    engine = CTranslate2Engine("float32")
    engine.sync_weights(policy)
    sampler = GroupSampler(engine, SortDigits(), n=1, train_batch_size=256, max_response_length=12)
    assert 0.3 < sampler.sample(torch.Generator().manual_seed(0)).mean_reward < 0.5
