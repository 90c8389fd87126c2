"""An engine that holds its weights in fewer bits than the trainer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from lightning_rollout_is.engines.interface import Completion, RolloutEngine
from lightning_rollout_is.engines.optional import require

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# torch knows this dtype, its type stubs do not.
_INT4: torch.dtype = getattr(torch, "int4")  # noqa: B009
INT4_GROUP = 32
"""Neighbouring weights of a row that share one int4 scale."""


def round_to_bfloat16(model: nn.Module) -> None:
    """Round every weight to bfloat16, in place; the dtype stays.

    Example:
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(layer.weight, 1.001)
        >>> round_to_bfloat16(layer)
        >>> layer.weight.dtype, float(layer.weight.detach())
        (torch.float32, 1.0)
    """
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().to(weight.dtype)


def round_to_int4(model: nn.Module) -> None:
    """Round the weights of every linear layer to int4 and back, in place, with torchao.

    Symmetric, one scale for each 32 neighbours in a row. Embeddings and norms keep their bits, as in weight-only
    quantisation for inference.

    Raises:
        ImportError: torchao is not installed.
        ValueError: A linear layer's input width is not a multiple of 32.
    """
    quantization = require("torchao.quantization", extra="torchao")
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    for width in {linear.in_features for linear in linears if linear.in_features % INT4_GROUP}:
        raise ValueError(f"a linear layer is {width} wide; int4 needs a multiple of {INT4_GROUP}")
    scheme = quantization.IntxWeightOnlyConfig(
        weight_dtype=_INT4, granularity=quantization.granularity.PerGroup(INT4_GROUP)
    )
    quantization.quantize_(model, scheme)
    for linear in linears:
        linear.weight = nn.Parameter(linear.weight.dequantize(), requires_grad=False)


ROUNDINGS = {"bfloat16": round_to_bfloat16, "int4": round_to_int4}


class RoundedWeights:
    """Rounds the weights before they reach the engine; the arithmetic stays the engine's own.

    Args:
        engine: The engine that samples.
        rounding: ``"bfloat16"`` or ``"int4"``.

    Raises:
        ValueError: An unknown rounding.
    """

    def __init__(self, engine: RolloutEngine, rounding: str) -> None:
        if rounding not in ROUNDINGS:
            raise ValueError(f"rounding = {rounding!r} is not allowed; allowed: {', '.join(ROUNDINGS)}")
        self.engine = engine
        self.rounding = ROUNDINGS[rounding]

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample with the rounded weights."""
        return self.engine.generate(prompts, max_new_tokens, temperature)

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Round a copy of the weights and pass it on; the policy is left as it is."""
        rounded = copy.deepcopy(policy).cpu().float()
        self.rounding(rounded)
        self.engine.sync_weights(rounded)
