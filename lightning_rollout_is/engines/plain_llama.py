"""Which policies the engines with a weight map of their own take."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import LlamaConfig


def require_plain_llama(config: LlamaConfig, engine: str) -> None:
    """Refuse a model with parts that the weight maps here leave out.

    Args:
        config: The policy's configuration.
        engine: Name of the engine, for the message.

    Raises:
        ValueError: The model is no Llama, has biases, heads of another width, or scaled rotary positions.
    """
    head_width = config.hidden_size // config.num_attention_heads
    found = {
        f"model_type = {config.model_type!r}": config.model_type != "llama",
        "attention biases": getattr(config, "attention_bias", False),
        "feed-forward biases": getattr(config, "mlp_bias", False),
        f"head_dim = {getattr(config, 'head_dim', head_width)}": getattr(config, "head_dim", head_width) != head_width,
        "scaled rotary positions": config.rope_parameters.get("rope_type", "default") != "default",
    }
    unknown = [part for part, present in found.items() if present]
    if unknown:
        raise ValueError(
            f"{engine} maps plain Llama models and found {', '.join(unknown)}; take TransformersEngine for this policy"
        )
