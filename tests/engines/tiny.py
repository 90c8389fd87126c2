"""A small policy with uneven predictions, and the trainer's opinion of what an engine sampled."""

import torch
from transformers.models.llama.modeling_llama import LlamaConfig, LlamaForCausalLM

BEGIN, END = 2, 3
# Lengths differ, and neighbours do not have equal lengths.
PROMPTS = [[BEGIN, *range(5, 5 + length)] for length in (3, 7, 3, 5, 1, 7)] * 8


def tiny_policy(seed=0, **settings):
    torch.manual_seed(seed)
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {"pad_token_id": 0, "bos_token_id": BEGIN, "eos_token_id": END}
    config = {"vocab_size": 32, "num_key_value_heads": 2, "initializer_range": 0.12, **shape, **special, **settings}
    return LlamaForCausalLM(LlamaConfig(**config))


@torch.no_grad()
def trainer_log_probs(policy, prompts, completions, temperature=1.0):
    """Log-prob of every sampled token under the policy, one sequence at a time, without any padding."""
    scores = []
    for prompt, completion in zip(prompts, completions, strict=True):
        logits = policy(torch.tensor([[*prompt, *completion.token_ids]])).logits[0, len(prompt) - 1 : -1]
        log_probs = (logits.double() / temperature).log_softmax(-1)
        scores.append(log_probs.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0])
    return torch.cat(scores)


def engine_log_probs(completions):
    return torch.tensor([value for completion in completions for value in completion.log_probs], dtype=torch.float64)
