"""Which llama.cpp is taken, and what is said where there is none."""

import pytest

from lightning_rollout_is.engines import LlamaCppEngine, llama_binding


def test_without_llama_cpp_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(llama_binding, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=r"neither llama_cpp nor ik_llama_cpp .*\[ik-llama-cpp\].*\[llama-cpp\]"):
        LlamaCppEngine()


def test_llama_cpp_itself_is_preferred_to_the_fork():
    assert list(llama_binding.BINDINGS) == ["llama_cpp", "ik_llama_cpp"]
