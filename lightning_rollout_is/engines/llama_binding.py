"""The two Python packages that carry llama.cpp, behind the few of its C functions that an engine needs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

from lightning_rollout_is.engines.optional import require

_LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
# llama.cpp keeps the pointer: the function must live as long as the library.
_SILENCE = _LOG_CALLBACK(lambda level, text, data: None)


class LlamaBinding(NamedTuple):
    """What differs between the packages; all else has the same name in both."""

    package: str
    """Name to import."""
    api: Any
    """The functions and structures of ``llama.h``."""
    free_model: Callable[[Any], None]
    """Free a model."""
    log_set: Callable[[Any, Any], None]
    """Say where log messages go."""
    context_settings: dict[str, Any]
    """Fields of ``llama_context_params`` that this package wants set."""
    small_batches: dict[str, int]
    """Most tokens that one call may take, by weight type, where a larger call goes wrong."""


def _mainline() -> LlamaBinding:
    api = require("llama_cpp", extra="llama-cpp")
    # One cache for all sequences, so that they can share the cells of a common prompt. Its flash attention computes in
    # half precision on a CPU: log-probs are off by 0.015 nats after 500 tokens, where they are by 0.0006 without.
    settings = {"kv_unified": True, "flash_attn_type": api.LLAMA_FLASH_ATTN_TYPE_DISABLED}
    return LlamaBinding("llama_cpp", api, api.llama_model_free, api.llama_log_set, settings, {})


def _fork() -> LlamaBinding:
    api = require("ik_llama_cpp._ctypes_api", extra="ik-llama-cpp")
    log_set = api._lib.llama_log_set
    log_set.argtypes, log_set.restype = [_LOG_CALLBACK, ctypes.c_void_p], None
    # Its flash attention aborts the process on CPUs without AVX-VNNI. In version 0.1.5 products of 32 tokens or more
    # with weights that have an offset are wrong: a policy of perplexity 12 comes out nearly uniform.
    small_batches = {"Q4_1": 31, "Q5_1": 31}
    return LlamaBinding("ik_llama_cpp", api, api.llama_free_model, log_set, {"flash_attn": False}, small_batches)


BINDINGS = {"llama_cpp": _mainline, "ik_llama_cpp": _fork}
"""In order of preference: llama.cpp itself, then the fork that comes as a wheel."""


def llama_binding() -> LlamaBinding:
    """The first package that is installed, started and silent.

    Raises:
        ImportError: None is.
    """
    for package, load in BINDINGS.items():
        if find_spec(package) is not None:
            binding = load()
            binding.log_set(_SILENCE, None)
            binding.api.llama_backend_init()
            return binding
    raise ImportError(
        "neither llama_cpp nor ik_llama_cpp is installed; install one with: "
        "pip install 'lightning-rollout-is[ik-llama-cpp]' (a fork, as a wheel for Linux) or "
        "pip install 'lightning-rollout-is[llama-cpp]' (llama.cpp itself, which is compiled for 4 to 20 minutes)"
    )
