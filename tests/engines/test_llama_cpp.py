"""llama.cpp against the trainer: its log-probs, its draws, its weights, and what it refuses."""

import os

import pytest
import torch

from lightning_rollout_is.engines import LlamaCppEngine, RolloutEngine
from lightning_rollout_is.engines.fast_folder import FAST_FOLDER
from lightning_rollout_is.engines.llama_binding import llama_binding
from lightning_rollout_is.engines.llama_sequences import shared_cells
from tests.engines.installed import needs_llama_cpp
from tests.engines.tiny import END, PROMPTS, engine_log_probs, tiny_policy, trainer_log_probs

pytestmark = needs_llama_cpp

# What remains with float weights comes from the engine's cache, which is float16.
CACHE = 0.005


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


def sampled_difference(policy, *, temperature=1.0, prompts=PROMPTS, **settings):
    engine = LlamaCppEngine(**settings)
    engine.sync_weights(policy)
    completions = engine.generate(prompts, 10, temperature)
    return trainer_log_probs(policy, prompts, completions, temperature) - engine_log_probs(completions)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_with_float_weights_the_engine_agrees_with_the_trainer(policy, temperature):
    assert sampled_difference(policy, weight_type="F32", temperature=temperature).abs().max() < CACHE


@pytest.mark.parametrize(
    ("weight_type", "least", "most"),
    [
        ("F16", 1e-4, 2e-3),
        ("BF16", 1e-3, 0.01),
        ("Q8_0", 5e-3, 0.05),
        ("Q5_1", 0.03, 0.2),
        ("Q5_0", 0.03, 0.2),
        ("Q4_1", 0.08, 0.5),
        ("Q4_0", 0.08, 0.5),
    ],
)
@pytest.mark.parametrize("longer", [0, 40])
def test_the_weight_type_sets_the_mismatch(policy, weight_type, least, most, longer):
    """However many tokens llama.cpp gets at once: 48 sequences, or prompts of more than 40 tokens."""
    beginning = [5 + place * place % 23 for place in range(longer)]
    prompts = [[*beginning, *prompt] for prompt in PROMPTS]
    assert least < sampled_difference(policy, weight_type=weight_type, prompts=prompts).abs().mean() < most


@pytest.mark.parametrize(
    "settings",
    [
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 37.0}},
        {"rms_norm_eps": 0.1},
    ],
)
def test_every_part_of_the_configuration_reaches_the_engine(settings):
    assert sampled_difference(tiny_policy(**settings), weight_type="F32").abs().max() < CACHE


def test_prompts_that_share_a_beginning_and_fill_several_batches(policy):
    beginning = [5 + place * place % 23 for place in range(500)]
    prompts = [beginning, [*beginning, 9, *beginning[:100]], [*beginning, 9], beginning, beginning[:250]]
    assert sampled_difference(policy, weight_type="F32", prompts=prompts).abs().max() < CACHE


def test_cells_hold_each_prompt_once_and_in_order():
    prompts = [[5, 6, 7], [5, 6], [5, 6, 7], [8]]
    cells = shared_cells(prompts)
    assert len(cells) == 4
    for row, prompt in enumerate(prompts):
        mine = [cell for cell in cells if row in cell.sequences]
        assert [cell.token for cell in mine] == prompt
        assert [cell.position for cell in mine] == list(range(len(prompt)))
        assert [row in cell.last_of for cell in mine] == [False] * (len(prompt) - 1) + [True]


@torch.no_grad()
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_frequencies_are_the_probabilities(policy, temperature):
    prompt, draws = PROMPTS[1], 4000
    engine = LlamaCppEngine("F32")
    engine.sync_weights(policy)
    completions = engine.generate([prompt] * draws, 1, temperature)
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in completions]), minlength=policy.config.vocab_size)
    expected = (policy(torch.tensor([prompt])).logits[0, -1].double() / temperature).softmax(-1) * draws
    # 31 degrees of freedom: 61.1 is exceeded once in a thousand seeds.
    assert ((counts - expected) ** 2 / expected).sum() < 61.1


def test_the_seed_decides_and_nothing_repeats(policy):
    def responses(seed, parallel=64):
        engine = LlamaCppEngine("F32", seed=seed, parallel=parallel)
        drawn = []
        for _ in range(2):
            engine.sync_weights(policy)
            drawn += [engine.generate(PROMPTS, 8), engine.generate(PROMPTS, 8)]
        return [[tuple(completion.token_ids) for completion in completions] for completions in drawn]

    first = responses(1)
    assert first == responses(1) == responses(1, parallel=7)
    assert first != responses(2)
    assert len({tuple(completions) for completions in first}) == 4


def test_copies_of_a_prompt_get_responses_of_their_own(policy):
    engine = LlamaCppEngine()
    engine.sync_weights(policy)
    completions = engine.generate([PROMPTS[0]] * 32, 8)
    assert len({tuple(completion.token_ids) for completion in completions}) > 24


def test_a_response_ends_with_its_end_token_or_at_the_limit(policy):
    engine = LlamaCppEngine()
    engine.sync_weights(policy)
    completions = engine.generate(PROMPTS * 4, 6)
    lengths = {len(completion.token_ids) for completion in completions}
    assert len(completions) == len(PROMPTS) * 4
    assert max(lengths) == 6
    assert len(lengths) > 1
    for token_ids, log_probs in completions:
        assert len(token_ids) == len(log_probs)
        assert END not in token_ids[:-1]
        assert token_ids[-1] == END or len(token_ids) == 6


def distance(engine, policy):
    completions = engine.generate(PROMPTS, 8)
    return (trainer_log_probs(policy, PROMPTS, completions) - engine_log_probs(completions)).abs().mean()


def test_after_a_refresh_the_log_probs_follow_the_trainer_and_before_it_they_do_not():
    policy, frozen = tiny_policy(), tiny_policy()
    engine = LlamaCppEngine("F16")
    assert isinstance(engine, RolloutEngine)
    engine.sync_weights(policy)
    optimizer = torch.optim.SGD(policy.parameters(), lr=5.0)
    policy(torch.tensor(PROMPTS[1:2]), labels=torch.tensor(PROMPTS[1:2])).loss.backward()
    optimizer.step()
    assert distance(engine, frozen) < 0.005
    assert distance(engine, policy) > 0.2
    engine.sync_weights(policy)
    assert distance(engine, policy) < 0.005
    assert distance(engine, frozen) > 0.2


def test_each_model_is_freed_once(policy, monkeypatch):
    binding, freed = llama_binding(), []

    def free(model):
        freed.append(model)
        binding.free_model(model)

    monkeypatch.setattr(
        "lightning_rollout_is.engines.llama_cpp.llama_binding", lambda: binding._replace(free_model=free)
    )
    engine = LlamaCppEngine()
    for refreshes in range(3):
        engine.sync_weights(policy)
        assert len(freed) == refreshes
    del engine
    assert len(freed) == 3


def test_a_refresh_leaves_no_files_behind(policy):
    before = set(os.listdir(FAST_FOLDER))
    engine = LlamaCppEngine()
    engine.sync_weights(policy)
    engine.generate(PROMPTS, 2)
    assert set(os.listdir(FAST_FOLDER)) <= before


def test_an_engine_without_weights_says_so():
    with pytest.raises(RuntimeError, match="sync_weights"):
        LlamaCppEngine().generate(PROMPTS, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_type": "Q3_K"}, r"weight_type = 'Q3_K' .*F16, .*Q4_0"),
        ({"parallel": 0}, r"parallel = 0 .*1 to 256"),
        ({"parallel": 257}, r"parallel = 257 .*1 to 256"),
        ({"threads": 0}, r"threads = 0 .*from 1"),
        ({"top_p": 0.0}, r"top_p = 0\.0 .*above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LlamaCppEngine(**settings)


@pytest.mark.parametrize(("setting", "part"), [("attention_bias", "attention biases"), ("mlp_bias", "feed-forward")])
def test_a_model_that_the_map_does_not_know_is_refused(setting, part):
    with pytest.raises(ValueError, match=rf"LlamaCppEngine .*{part}"):
        LlamaCppEngine().sync_weights(tiny_policy(**{setting: True}))


def test_rows_that_no_block_fits_are_refused_and_floats_take_them():
    narrow = tiny_policy(hidden_size=48)
    with pytest.raises(ValueError, match=r"rows of 48 weights; weight_type = 'Q4_0' .*32; .*F16"):
        LlamaCppEngine("Q4_0").sync_weights(narrow)
    assert sampled_difference(narrow, weight_type="F32").abs().max() < CACHE


@torch.no_grad()
def test_a_filter_is_announced_and_its_log_probs_are_those_of_the_filtered_draw(policy):
    with pytest.warns(UserWarning, match=r"top_k = 3: .*no importance weight"):
        engine = LlamaCppEngine("F32", top_k=3)
    engine.sync_weights(policy)
    drawn = {(c.token_ids[0], c.log_probs[0]) for c in engine.generate([PROMPTS[1]] * 200, 1, 0.8)}
    kept = (policy(torch.tensor(PROMPTS[1:2])).logits[0, -1].double() / 0.8).topk(3)
    expected = dict(zip(kept.indices.tolist(), kept.values.log_softmax(-1).tolist(), strict=True))
    assert {token for token, _ in drawn} == set(expected)
    assert all(abs(log_prob - expected[token]) < CACHE for token, log_prob in drawn)
