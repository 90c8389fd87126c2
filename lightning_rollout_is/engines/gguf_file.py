"""A policy as a GGUF file, the format that llama.cpp loads."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lightning_rollout_is.engines.gguf_names import gguf_name, pair_neighbours
from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.engines.plain_llama import require_plain_llama

if TYPE_CHECKING:
    from transformers import LlamaConfig, PreTrainedModel

WEIGHT_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
"""What the matrices may be stored as: floats, or integers of so many bits with a scale for 32, in _1 an offset too."""
BLOCK = 32
"""Neighbouring weights of a row that share one scale."""
EIGHT_BITS = "Q8_0"


def write_gguf(policy: PreTrainedModel, path: Path, weight_type: str) -> None:
    """Write a ``LlamaForCausalLM`` with its present weights, and no tokenizer: the engine takes and gives token ids.

    Norms stay in float32. Embedding and output keep at least 8 bits, since llama.cpp's own quantiser spares them too.

    Args:
        policy: The model; plain rotary positions, no biases.
        path: Where to.
        weight_type: One of :data:`WEIGHT_TYPES`.

    Raises:
        ImportError: gguf is not installed.
        ValueError: The model has a part that this map does not know, or a row is no multiple of 32 wide.
    """
    require_plain_llama(policy.config, "LlamaCppEngine")
    gguf = require("gguf", extra="llama-cpp")
    _quieten(logging.getLogger("gguf"))
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, policy.config)
    for name, weight in policy.state_dict().items():
        # A tied output is the embedding under a second name.
        if not (name == "lm_head.weight" and policy.config.tie_word_embeddings):
            array = _in_llama_cpp_order(name, weight.detach().float().cpu().numpy(), policy.config)
            _add(gguf, writer, gguf_name(name, policy.config.num_hidden_layers), array, weight_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _quieten(logger: logging.Logger) -> None:
    # Three lines a refresh, unless the user has asked for them.
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


def _describe(writer: Any, config: LlamaConfig) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("none")


def _in_llama_cpp_order(name: str, array: NDArray[np.float32], config: LlamaConfig) -> NDArray[np.float32]:
    if name.endswith("q_proj.weight"):
        return pair_neighbours(array, config.num_attention_heads)
    if name.endswith("k_proj.weight"):
        return pair_neighbours(array, config.num_key_value_heads)
    return array


def _add(gguf: Any, writer: Any, name: str, array: NDArray[np.float32], weight_type: str) -> None:
    kind = gguf.GGMLQuantizationType[_stored_type(name, array, weight_type)]
    if kind.name.startswith("Q") and array.shape[-1] % BLOCK:
        raise ValueError(
            f"{name} has rows of {array.shape[-1]} weights; weight_type = {weight_type!r} needs a multiple of {BLOCK}; "
            "allowed for this policy: F32, F16, BF16"
        )
    writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)


def _stored_type(name: str, array: NDArray[np.float32], weight_type: str) -> str:
    if array.ndim == 1:
        return "F32"
    spared = name in ("token_embd.weight", "output.weight") and weight_type.startswith("Q")
    return EIGHT_BITS if spared else weight_type
