"""Real rollouts of SmolLM2-135M-Instruct: what an engine gave for each sampled token, and what PyTorch gave for it."""

from tests.real_rollouts.rollouts import read_batch as read_rollouts

__all__ = ["ENGINES", "read_rollouts"]

ENGINES = ("llama_cpp_q4_0", "vllm_bf16")
"""A well matched engine (vLLM in bfloat16), and the worst of all (llama.cpp with 4-bit weights, KL 0.41)."""
