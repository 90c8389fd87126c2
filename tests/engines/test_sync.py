"""Which weights an engine samples with."""

import os

import pytest
import torch

from lightning_rollout_is.engines import (
    CTranslate2Engine,
    RolloutEngine,
    RoundedWeights,
    StaleEngine,
    TransformersEngine,
)
from lightning_rollout_is.engines.ctranslate2 import FAST_FOLDER
from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.engines.seeds import stream_seed
from tests.engines.tiny import PROMPTS, engine_log_probs, tiny_policy, trainer_log_probs

KINDS = {
    "ctranslate2": lambda: CTranslate2Engine("float32"),
    "transformers": lambda: TransformersEngine("float32"),
    "rounded": lambda: RoundedWeights(CTranslate2Engine("float32"), "bfloat16"),
    "stale": lambda: StaleEngine(CTranslate2Engine("float32"), every=1),
}


def distance(engine, policy):
    completions = engine.generate(PROMPTS, 8)
    return (trainer_log_probs(policy, PROMPTS, completions) - engine_log_probs(completions)).abs().mean()


@pytest.mark.parametrize("kind", KINDS)
def test_a_refresh_changes_the_engine(kind):
    before, after = tiny_policy(seed=0), tiny_policy(seed=1)
    engine = KINDS[kind]()
    assert isinstance(engine, RolloutEngine)
    engine.sync_weights(before)
    assert distance(engine, before) < 0.02
    assert distance(engine, after) > 0.2
    engine.sync_weights(after)
    assert distance(engine, after) < 0.02
    assert distance(engine, before) > 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_keeps_its_weights_when_the_policy_moves_on(kind):
    policy, frozen = tiny_policy(), tiny_policy()
    engine = KINDS[kind]()
    engine.sync_weights(policy)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(1.5)
    assert distance(engine, frozen) < 0.02
    assert distance(engine, policy) > 0.1


def test_a_stale_engine_follows_every_third_refresh():
    policies = [tiny_policy(seed=seed) for seed in range(4)]
    engine = StaleEngine(CTranslate2Engine("float32"), every=3)
    held = []
    for policy in policies:
        engine.sync_weights(policy)
        held.append([distance(engine, other) < 1e-4 for other in policies].index(True))
    assert held == [0, 0, 0, 3]


@pytest.mark.parametrize("engine", [CTranslate2Engine(), TransformersEngine()])
def test_an_engine_without_weights_says_so(engine):
    with pytest.raises(RuntimeError, match="sync_weights"):
        engine.generate(PROMPTS, 4)


def test_a_refresh_leaves_no_files_behind():
    before = set(os.listdir(FAST_FOLDER))
    engine = CTranslate2Engine()
    engine.sync_weights(tiny_policy())
    engine.generate(PROMPTS, 2)
    assert set(os.listdir(FAST_FOLDER)) <= before


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"attention_bias": True}, "attention biases"),
        ({"mlp_bias": True}, "feed-forward biases"),
        ({"head_dim": 32}, "head_dim = 32"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "scaled rotary positions"),
    ],
)
def test_a_model_that_the_map_does_not_know_is_refused(settings, part):
    with pytest.raises(ValueError, match=part):
        CTranslate2Engine().sync_weights(tiny_policy(**settings))


def test_another_rotary_base_is_mapped():
    policy = tiny_policy(rope_parameters={"rope_type": "default", "rope_theta": 37.0})
    engine = CTranslate2Engine("float32")
    engine.sync_weights(policy)
    assert distance(engine, policy) < 1e-4


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"every = 0 .* from 1"):
        StaleEngine(CTranslate2Engine(), every=0)
    with pytest.raises(ValueError, match=r"'int3' .*bfloat16, int4"):
        RoundedWeights(CTranslate2Engine(), "int3")
    with pytest.raises(ValueError, match=r"compute_type = 'int3' .*float32, .*int8"):
        CTranslate2Engine("int3")
    with pytest.raises(ValueError, match=r"dtype = 'int8' .*bfloat16"):
        TransformersEngine("int8")
    with pytest.raises(ValueError, match="48 wide"):
        RoundedWeights(CTranslate2Engine(), "int4").sync_weights(tiny_policy(hidden_size=48))


def test_a_missing_package_names_its_extra():
    with pytest.raises(ImportError, match=r"pip install 'lightning-rollout-is\[reasoning-gym\]'"):
        require("no_such_package", extra="reasoning-gym")


def test_each_rank_has_a_stream_of_its_own():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    seeds = [stream_seed(1, draw=0)]
    for rank in range(2):
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
        seeds.append(stream_seed(1, draw=0))
        torch.distributed.destroy_process_group()
    assert seeds[0] == seeds[1] != seeds[2]
