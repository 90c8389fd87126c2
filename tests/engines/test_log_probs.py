"""What each engine says about its samples, against the trainer's own scoring of them."""

import copy

import pytest
import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

from lightning_rollout_is.engines import CTranslate2Engine, RoundedWeights, TransformersEngine
from lightning_rollout_is.engines.rounded import round_to_bfloat16, round_to_int4
from tests.engines.tiny import END, PROMPTS, engine_log_probs, tiny_policy, trainer_log_probs

EXACT = {"rtol": 0, "atol": 1e-4}


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


def sampled_difference(engine, policy, temperature=1.0):
    engine.sync_weights(policy)
    completions = engine.generate(PROMPTS, 10, temperature)
    return trainer_log_probs(policy, PROMPTS, completions, temperature) - engine_log_probs(completions)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
@pytest.mark.parametrize("engine", [CTranslate2Engine("float32"), TransformersEngine("float32")])
def test_in_float32_the_engine_agrees_with_the_trainer(engine, policy, temperature):
    difference = sampled_difference(engine, policy, temperature)
    torch.testing.assert_close(difference, torch.zeros_like(difference), **EXACT)


def test_tied_embeddings_and_full_attention_heads_agree_too():
    policy = tiny_policy(tie_word_embeddings=True, num_key_value_heads=4)
    difference = sampled_difference(CTranslate2Engine("float32"), policy)
    torch.testing.assert_close(difference, torch.zeros_like(difference), **EXACT)


@pytest.mark.parametrize(
    ("engine", "least", "most"),
    [
        (CTranslate2Engine("int8"), 1e-3, 0.1),
        (TransformersEngine("bfloat16"), 1e-3, 0.1),
        (RoundedWeights(CTranslate2Engine("float32"), "bfloat16"), 5e-4, 0.05),
        (RoundedWeights(CTranslate2Engine("float32"), "int4"), 0.02, 1.0),
    ],
)
def test_fewer_bits_disagree_a_little(engine, least, most, policy):
    difference = sampled_difference(engine, policy)
    assert least < difference.abs().mean() < most


@pytest.mark.parametrize(("rounding", "in_place"), [("bfloat16", round_to_bfloat16), ("int4", round_to_int4)])
def test_rounding_is_all_that_happens_to_the_weights(rounding, in_place, policy):
    before = copy.deepcopy(policy.state_dict())
    engine = RoundedWeights(CTranslate2Engine("float32"), rounding)
    engine.sync_weights(policy)
    completions = engine.generate(PROMPTS, 10)
    rounded = copy.deepcopy(policy)
    in_place(rounded)
    expected = trainer_log_probs(rounded, PROMPTS, completions)
    torch.testing.assert_close(engine_log_probs(completions), expected, **EXACT)
    torch.testing.assert_close(policy.state_dict(), before, rtol=0, atol=0)


def test_int4_leaves_16_levels_a_group():
    layer = torch.nn.Sequential(torch.nn.Linear(64, 8, bias=False))
    exact = layer[0].weight.detach().clone()
    round_to_int4(layer)
    groups = layer[0].weight.view(8, 2, 32)
    assert max(len(row.unique()) for row in groups.flatten(0, 1)) <= 16
    step = exact.view(8, 2, 32).abs().amax(-1, keepdim=True) / 7
    assert ((groups - exact.view(8, 2, 32)).abs() <= step).all()


@pytest.mark.parametrize("engine", [CTranslate2Engine("int8"), TransformersEngine()])
def test_a_response_ends_with_its_end_token_or_at_the_limit(engine, policy):
    engine.sync_weights(policy)
    completions = engine.generate(PROMPTS * 4, 6)
    assert len(completions) == len(PROMPTS) * 4
    lengths = {len(completion.token_ids) for completion in completions}
    assert max(lengths) == 6
    assert len(lengths) > 1
    for token_ids, log_probs in completions:
        assert len(token_ids) == len(log_probs)
        assert END not in token_ids[:-1]
        assert token_ids[-1] == END or len(token_ids) == 6


def test_another_quantisation_of_torchao_would_show(policy):
    """The int4 difference is int4's: int8 weights differ from the policy by far less."""
    rounded = copy.deepcopy(policy)
    quantize_(rounded, Int8WeightOnlyConfig())
    engine = CTranslate2Engine("float32")
    for module in rounded.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight = torch.nn.Parameter(module.weight.dequantize(), requires_grad=False)
    engine.sync_weights(rounded)
    completions = engine.generate(PROMPTS, 10)
    int8 = trainer_log_probs(policy, PROMPTS, completions) - engine_log_probs(completions)
    int4 = sampled_difference(RoundedWeights(CTranslate2Engine("float32"), "int4"), policy)
    assert int4.abs().mean() > 4 * int8.abs().mean()
