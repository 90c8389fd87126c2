"""The weights of a transformers Llama under CTranslate2's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.engines.plain_llama import require_plain_llama

if TYPE_CHECKING:
    from transformers import LlamaConfig, PreTrainedModel


def llama_spec(policy: PreTrainedModel) -> Any:
    """Describe a ``LlamaForCausalLM`` to CTranslate2, with its present weights in float32.

    Args:
        policy: The model; plain rotary positions, no biases.

    Returns:
        A ``TransformerDecoderModelSpec`` that can be saved.

    Raises:
        ImportError: ctranslate2 is not installed.
        ValueError: The model has a part that this map does not know.
    """
    require_plain_llama(policy.config, "CTranslate2Engine")
    specs = require("ctranslate2.specs", extra="ctranslate2")
    spec = _empty_spec(specs, policy.config)
    weights = {name: tensor.detach().float().cpu().numpy() for name, tensor in policy.state_dict().items()}
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = weights["model.embed_tokens.weight"]
    decoder.layer_norm.gamma = weights["model.norm.weight"]
    decoder.projection.weight = weights["lm_head.weight"]
    for index, layer in enumerate(decoder.layer):
        _fill_layer(layer, weights, f"model.layers.{index}.")
    _fill_vocabulary(spec, policy.config)
    spec.validate()
    spec.optimize(quantization=None)
    return spec


def token_strings(config: LlamaConfig) -> list[str]:
    """Names of the token ids, since CTranslate2 takes prompts as strings.

    Example:
        >>> from types import SimpleNamespace
        >>> token_strings(SimpleNamespace(vocab_size=3))
        ['<0>', '<1>', '<2>']
    """
    return [f"<{token}>" for token in range(config.vocab_size)]


def _empty_spec(specs: Any, config: LlamaConfig) -> Any:
    shared_heads = config.num_key_value_heads != config.num_attention_heads
    return specs.TransformerDecoderModelSpec.from_config(
        config.num_hidden_layers,
        config.num_attention_heads,
        activation=specs.common_spec.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=float(config.rope_parameters["rope_theta"]),
        num_heads_kv=config.num_key_value_heads if shared_heads else None,
    )


def _fill_layer(layer: Any, weights: dict[str, NDArray[np.float32]], prefix: str) -> None:
    attention, ffn = layer.self_attention, layer.ffn
    attention.layer_norm.gamma = weights[prefix + "input_layernorm.weight"]
    attention.linear[0].weight = np.concatenate([weights[f"{prefix}self_attn.{part}_proj.weight"] for part in "qkv"])
    attention.linear[1].weight = weights[prefix + "self_attn.o_proj.weight"]
    ffn.layer_norm.gamma = weights[prefix + "post_attention_layernorm.weight"]
    ffn.linear_0.weight = weights[prefix + "mlp.gate_proj.weight"]
    ffn.linear_0_noact.weight = weights[prefix + "mlp.up_proj.weight"]
    ffn.linear_1.weight = weights[prefix + "mlp.down_proj.weight"]


def _fill_vocabulary(spec: Any, config: LlamaConfig) -> None:
    tokens = token_strings(config)
    spec.register_vocabulary(tokens)
    spec.config.layer_norm_epsilon = config.rms_norm_eps
    spec.config.bos_token = tokens[config.bos_token_id]
    spec.config.eos_token = tokens[config.eos_token_id]
    spec.config.unk_token = tokens[config.pad_token_id]
