"""The samples follow the distribution that the log-probs speak of, and no stream repeats."""

import pytest
import torch

from lightning_rollout_is.engines import CTranslate2Engine, TransformersEngine
from tests.engines.tiny import PROMPTS, tiny_policy

ENGINES = [CTranslate2Engine, TransformersEngine]


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


@torch.no_grad()
def first_token_probs(policy, prompt, temperature):
    return (policy(torch.tensor([prompt])).logits[0, -1].double() / temperature).softmax(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("engine", [CTranslate2Engine("float32"), TransformersEngine("float32")])
def test_frequencies_are_the_probabilities(engine, policy, temperature):
    prompt, draws = PROMPTS[1], 4000
    engine.sync_weights(policy)
    completions = engine.generate([prompt] * draws, 1, temperature)
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in completions]), minlength=policy.config.vocab_size)
    expected = first_token_probs(policy, prompt, temperature) * draws
    chi_square = ((counts - expected) ** 2 / expected).sum()
    # 31 degrees of freedom: 61.1 is exceeded once in a thousand seeds.
    assert chi_square < 61.1


@pytest.mark.parametrize("kind", ENGINES)
def test_the_seed_decides(kind, policy):
    def responses(seed):
        engine = kind(seed=seed)
        engine.sync_weights(policy)
        return [engine.generate(PROMPTS, 8) for _ in range(2)]

    first, again, other = responses(1), responses(1), responses(2)
    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", ENGINES)
def test_neither_a_call_nor_a_refresh_repeats_the_stream(kind, policy):
    engine = kind(seed=1)
    engine.sync_weights(policy)
    first, second = engine.generate(PROMPTS, 8), engine.generate(PROMPTS, 8)
    engine.sync_weights(policy)
    third = engine.generate(PROMPTS, 8)
    assert first != second
    assert third not in (first, second)


@pytest.mark.parametrize("kind", ENGINES)
def test_copies_of_a_prompt_get_responses_of_their_own(kind, policy):
    engine = kind()
    engine.sync_weights(policy)
    completions = engine.generate([PROMPTS[0]] * 32, 8)
    assert len({tuple(completion.token_ids) for completion in completions}) > 24


def test_sampling_leaves_torchs_own_stream_alone(policy):
    engine = TransformersEngine()
    engine.sync_weights(policy)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    engine.generate(PROMPTS, 4)
    assert torch.rand(1) == expected
