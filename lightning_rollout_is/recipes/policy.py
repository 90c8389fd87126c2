"""The small policy of the examples."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.recipes.byte_tokens import BEGIN, END, PAD, VOCABULARY_SIZE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WARM_START = "tiny_llama_sorting.safetensors"
"""Checkpoint beside this file, made by ``examples/make_warm_start.py``."""


def tiny_llama(layers: int = 4, width: int = 128, heads: int = 4, warm_start: bool = True) -> PreTrainedModel:
    """A ``LlamaForCausalLM`` over bytes, 0.92 million weights unless told otherwise.

    Args:
        layers: Decoder layers.
        width: Hidden width, a multiple of 32 for int4 rollouts; the feed-forward part is three times as wide.
        heads: Attention heads.
        warm_start: Load the shipped checkpoint, which sorts two numbers in five right. Only for the default sizes.

    Raises:
        ImportError: transformers or safetensors is not installed.

    Example:
        >>> sum(weight.numel() for weight in tiny_llama(layers=1, width=32, warm_start=False).parameters())
        29792
    """
    llama = require("transformers.models.llama.modeling_llama", extra="transformers")
    config = llama.LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        pad_token_id=PAD,
        bos_token_id=BEGIN,
        eos_token_id=END,
    )
    model = llama.LlamaForCausalLM(config)
    if warm_start:
        _load_warm_start(model)
    return model


def _load_warm_start(model: PreTrainedModel) -> None:
    load_file = require("safetensors.torch", extra="examples").load_file
    with as_file(files(__package__) / WARM_START) as path:
        model.load_state_dict(load_file(path))
