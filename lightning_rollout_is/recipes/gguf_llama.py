"""A Llama out of a GGUF file, as a policy that can be trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lightning_rollout_is.engines.gguf_names import gguf_name, pair_halves
from lightning_rollout_is.engines.optional import require

if TYPE_CHECKING:
    from transformers import LlamaConfig, PreTrainedModel


def open_gguf(path: Path) -> Any:
    """Read the index of a GGUF file; weights are read when they are asked for.

    Args:
        path: The file.

    Returns:
        A ``gguf.GGUFReader``.

    Raises:
        ImportError: gguf is not installed.
    """
    return require("gguf", extra="llama-cpp").GGUFReader(path)


def llama_from_gguf(file: Any) -> PreTrainedModel:
    """Load a ``LlamaForCausalLM`` in float32 with the weights of a GGUF file, dequantised.

    The function computes exactly what the file says; rounding them again for an engine adds a mismatch.

    Args:
        file: From :func:`open_gguf`.

    Raises:
        ImportError: gguf or transformers is not installed.
        ValueError: The file holds another kind of model.
    """
    architecture = _value(file, "general.architecture")
    if architecture != "llama":
        raise ValueError(f"general.architecture = {architecture!r} is not allowed; allowed: 'llama'")
    llama = require("transformers.models.llama.modeling_llama", extra="transformers")
    tensors = {tensor.name: tensor for tensor in file.tensors}
    model = llama.LlamaForCausalLM(_config(llama, file, tied="output.weight" not in tensors))
    gguf, layers = require("gguf", extra="llama-cpp"), model.config.num_hidden_layers
    weights = {
        name: _weight(gguf, tensors[gguf_name(name, layers)], name, model.config)
        for name in model.state_dict()
        # A tied output is the embedding under a second name.
        if not (name == "lm_head.weight" and model.config.tie_word_embeddings)
    }
    model.load_state_dict(weights, strict=False)
    return model


def _config(llama: Any, file: Any, tied: bool) -> LlamaConfig:
    return llama.LlamaConfig(
        vocab_size=_value(file, "llama.vocab_size"),
        hidden_size=_value(file, "llama.embedding_length"),
        intermediate_size=_value(file, "llama.feed_forward_length"),
        num_hidden_layers=_value(file, "llama.block_count"),
        num_attention_heads=_value(file, "llama.attention.head_count"),
        num_key_value_heads=_value(file, "llama.attention.head_count_kv"),
        max_position_embeddings=_value(file, "llama.context_length"),
        rms_norm_eps=_value(file, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": _value(file, "llama.rope.freq_base")},
        tie_word_embeddings=tied,
        bos_token_id=_value(file, "tokenizer.ggml.bos_token_id"),
        eos_token_id=_value(file, "tokenizer.ggml.eos_token_id"),
        pad_token_id=_value(file, "tokenizer.ggml.padding_token_id"),
    )


def _weight(gguf: Any, tensor: Any, name: str, config: LlamaConfig) -> torch.Tensor:
    weight = gguf.dequantize(tensor.data, tensor.tensor_type)
    if name.endswith("q_proj.weight"):
        weight = pair_halves(weight, config.num_attention_heads)
    if name.endswith("k_proj.weight"):
        weight = pair_halves(weight, config.num_key_value_heads)
    return torch.tensor(weight, dtype=torch.float32)


def _value(file: Any, key: str) -> Any:
    field = file.fields.get(key)
    return None if field is None else field.contents()
