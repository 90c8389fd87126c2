"""vLLM in this process, where it is installed; what is said where it is not."""

import pytest
import torch

from lightning_rollout_is.engines import RolloutEngine, VLLMEngine
from lightning_rollout_is.engines.optional import require
from tests.engines.installed import needs_vllm
from tests.engines.tiny import END, PROMPTS, engine_log_probs, tiny_policy, trainer_log_probs

SOME = PROMPTS[:24]
# vLLM and what it imports use deprecated calls.
pytestmark = pytest.mark.filterwarnings("default")


def difference(policy, completions, temperature=1.0):
    return (trainer_log_probs(policy, SOME, completions, temperature) - engine_log_probs(completions)).abs()


@pytest.fixture(scope="module")
def policy():
    return tiny_policy(num_attention_heads=2, max_position_embeddings=64)


@pytest.fixture(scope="module")
def engine(policy):
    engine = VLLMEngine("float32", max_model_len=64, parallel=32)
    torch.manual_seed(3)
    engine.sync_weights(policy)
    engine.next_of_torch = torch.rand(1)
    return engine


@needs_vllm
def test_starting_leaves_torchs_own_stream_alone(engine):
    torch.manual_seed(3)
    assert torch.rand(1) == engine.next_of_torch


@needs_vllm
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_in_float32_the_engine_agrees_with_the_trainer(engine, policy, temperature):
    assert isinstance(engine, RolloutEngine)
    completions = engine.generate(SOME, 10, temperature)
    assert difference(policy, completions, temperature).max() < 1e-3
    assert {len(completion.token_ids) for completion in completions} > {10}
    assert all(END not in completion.token_ids[:-1] for completion in completions)


@needs_vllm
def test_copies_of_a_prompt_get_responses_of_their_own_and_no_call_repeats(engine):
    first, second = (engine.generate([PROMPTS[0]] * 32, 8) for _ in range(2))
    assert len({tuple(completion.token_ids) for completion in first}) > 24
    assert first != second


@needs_vllm
def test_after_a_refresh_the_log_probs_follow_the_trainer_and_before_it_they_do_not(engine, policy):
    moved = tiny_policy(seed=1, num_attention_heads=2, max_position_embeddings=64)
    assert difference(moved, engine.generate(SOME, 10)).mean() > 0.2
    engine.sync_weights(moved)
    completions = engine.generate(SOME, 10)
    engine.sync_weights(policy)
    assert difference(moved, completions).max() < 1e-3
    assert difference(policy, completions).mean() > 0.2


@needs_vllm
def test_frequencies_are_the_probabilities(engine, policy):
    prompt, draws = PROMPTS[1], 2000
    completions = engine.generate([prompt] * draws, 1)
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in completions]), minlength=policy.config.vocab_size)
    with torch.no_grad():
        expected = policy(torch.tensor([prompt])).logits[0, -1].double().softmax(-1) * draws
    # 31 degrees of freedom: 61.1 is exceeded once in a thousand seeds.
    assert ((counts - expected) ** 2 / expected).sum() < 61.1


def test_without_vllm_the_error_says_what_to_install(monkeypatch):
    def missing(module, extra):
        return require("no_such_engine", extra)

    monkeypatch.setattr("lightning_rollout_is.engines.vllm.require", missing)
    with pytest.raises(ImportError, match=r"pip install 'lightning-rollout-is\[vllm\]'"):
        VLLMEngine()


def test_filters_are_announced_before_anything_is_loaded():
    with pytest.raises(ValueError, match=r"top_k = -1"):
        VLLMEngine(top_k=-1)
