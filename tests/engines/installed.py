"""Which optional engines are here; tests of the others are skipped, and say what to install."""

from importlib.util import find_spec

import pytest

LLAMA_CPP = find_spec("gguf") and (find_spec("llama_cpp") or find_spec("ik_llama_cpp"))
needs_llama_cpp = pytest.mark.skipif(
    not LLAMA_CPP, reason="llama.cpp is not installed: pip install 'lightning-rollout-is[ik-llama-cpp]'"
)
