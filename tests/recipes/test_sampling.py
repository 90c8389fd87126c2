"""Groups, dynamic sampling, padding and the order of mini-batches."""

import pytest
import torch

from lightning_rollout_is.engines import CTranslate2Engine
from lightning_rollout_is.recipes.byte_tokens import END, decode_response, encode_prompt
from lightning_rollout_is.recipes.experience import Experience, pad_groups
from lightning_rollout_is.recipes.policy import tiny_llama
from lightning_rollout_is.recipes.rollout_loader import RolloutLoader
from lightning_rollout_is.recipes.sampling import GroupSampler
from tests.recipes.tiny import EvenBytes, fit, tiny_module


class OftenTheSame(EvenBytes):
    """Even numbers are worth 1 whatever is answered; the others as in the base class."""

    def score(self, item, response):
        return 1.0 if int(item.prompt[:-1]) % 2 == 0 else super().score(item, response)


class AlwaysTheSame(EvenBytes):
    def score(self, item, response):
        return 1.0


@pytest.fixture(scope="module")
def engine():
    torch.manual_seed(0)
    engine = CTranslate2Engine("float32")
    engine.sync_weights(tiny_llama(layers=1, width=32, heads=2, warm_start=False))
    return engine


def sampler(engine, task, **filter_groups):
    return GroupSampler(engine, task, n=4, train_batch_size=6, max_response_length=5, filter_groups=filter_groups)


def draw(sampler, seed=0):
    return sampler.sample(torch.Generator().manual_seed(seed))


def test_a_group_is_one_prompt_with_its_own_responses(engine):
    sample = draw(sampler(engine, EvenBytes()))
    assert len(sample.groups) == 6
    for group in sample.groups:
        assert len(group.completions) == len(group.rewards) == 4
        for completion, reward in zip(group.completions, group.rewards, strict=True):
            assert reward == EvenBytes().score(None, decode_response(completion.token_ids))
    rewards = [reward for group in sample.groups for reward in group.rewards]
    assert sample.mean_reward == pytest.approx(sum(rewards) / 24)


def test_without_dynamic_sampling_uniform_groups_stay(engine):
    groups = draw(sampler(engine, OftenTheSame())).groups
    assert {group.mixed for group in groups} == {True, False}


def test_dynamic_sampling_keeps_mixed_groups_only(engine):
    dynamic = sampler(engine, OftenTheSame(), enable=True, max_num_gen_batches=10)
    groups, mean_reward = draw(dynamic)
    assert len(groups) == 6
    assert all(group.mixed for group in groups)
    # Dropped groups count: their reward is 1, and that of the kept ones about a half.
    assert mean_reward > 0.1 + sum(sum(group.rewards) for group in groups) / 24


def test_dynamic_sampling_is_bounded_and_fills_up(engine):
    task = AlwaysTheSame()
    calls = []
    task.sample = lambda n, generator: calls.append(n) or EvenBytes.sample(task, n, generator)
    groups, mean_reward = draw(sampler(engine, task, enable=True, max_num_gen_batches=3))
    assert calls == [6, 6, 6]
    assert len(groups) == 6
    assert mean_reward == 1.0


def test_dynamic_sampling_trains(tmp_path):
    module = tiny_module(task=OftenTheSame(), filter_groups={"enable": True, "max_num_gen_batches": 8})
    assert fit(module, tmp_path).global_step == 3


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("rollout.n", {"n": 0}),
        ("train_batch_size", {"train_batch_size": 0}),
        ("max_response_length", {"max_response_length": 0}),
        ("max_num_gen_batches", {"filter_groups": {"enable": True, "max_num_gen_batches": 0}}),
    ],
)
def test_sizes_under_one_are_refused_by_name(engine, key, settings):
    with pytest.raises(ValueError, match=f"{key} = 0 is not allowed"):
        GroupSampler(engine, EvenBytes(), **settings)


def test_the_mask_picks_exactly_what_was_sampled(engine):
    groups = draw(sampler(engine, EvenBytes())).groups
    responses = pad_groups(groups)
    rows = [completion for group in groups for completion in group.completions]
    for row, completion in enumerate(rows):
        mask = responses.response_mask[row]
        assert responses.token_ids[row, 1:][mask].tolist() == completion.token_ids
        assert responses.rollout_log_prob[row][mask].tolist() == pytest.approx(completion.log_probs)
        prompt = groups[row // 4].prompt
        assert responses.token_ids[row, : len(prompt)].tolist() == prompt
    assert responses.group_ids.tolist() == [row // 4 for row in range(24)]


def test_every_sequence_is_seen_once_an_epoch():
    column = torch.arange(10)
    experience = Experience(*[column] * len(Experience._fields))
    rollouts = []
    loader = RolloutLoader(
        lambda: rollouts.append(1) or experience, sequences=10, mini_batch=4, ppo_epochs=2, rollouts=3
    )
    batches = iter(loader)
    assert rollouts == []
    seen = [next(batches).token_ids for _ in range(6)]
    assert len(rollouts) == 1
    assert [len(batch) for batch in seen] == [4, 4, 2] * 2
    for epoch in (seen[:3], seen[3:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(10))
    assert len(list(batches)) + 6 == len(loader) == 18


def test_bytes_make_the_round_trip():
    assert encode_prompt("a1>")[1:] == list(b"a1>")
    assert decode_response([*"né".encode(), END]) == "né"
    assert decode_response([0xFF, *b"7", END]) == "7"
