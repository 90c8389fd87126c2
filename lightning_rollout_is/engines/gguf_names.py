"""What GGUF calls the weights of a Llama, and in which order it keeps the rows of queries and keys."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lightning_rollout_is.engines.optional import require

Number = TypeVar("Number", bound=np.generic)


def gguf_name(name: str, layers: int) -> str:
    """GGUF's name of a weight.

    Args:
        name: Name in the ``state_dict`` of a ``LlamaForCausalLM``.
        layers: Decoder layers of the model.

    Raises:
        ImportError: gguf is not installed.
        ValueError: The name is unknown to GGUF's Llama.
    """
    known: str | None = _names(layers).get_name(name, try_suffixes=(".weight",))
    if known is None:
        raise ValueError(f"{name} has no place in a GGUF file of a Llama with {layers} layers")
    return known


# The map spells out the names of every architecture, layer by layer.
@cache
def _names(layers: int) -> Any:
    gguf = require("gguf", extra="llama-cpp")
    return gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)


def pair_neighbours(rows: NDArray[Number], heads: int) -> NDArray[Number]:
    """Order of llama.cpp, whose rotary embedding turns rows 0 and 1, 2 and 3, ... of a head together.

    transformers turns rows 0 and n/2, 1 and n/2 + 1, ... of the n rows of a head.

    Args:
        rows: Weight of a query or key projection as transformers has it, (rows, columns).
        heads: Heads that share the rows.

    Example:
        >>> pair_neighbours(np.arange(8)[:, None], heads=2)[:, 0].tolist()
        [0, 2, 1, 3, 4, 6, 5, 7]
    """
    return rows.reshape(heads, 2, len(rows) // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def pair_halves(rows: NDArray[Number], heads: int) -> NDArray[Number]:
    """Order of transformers: undoes :func:`pair_neighbours`.

    Example:
        >>> pair_halves(pair_neighbours(np.arange(12)[:, None], heads=1), heads=1)[:, 0].tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    """
    return rows.reshape(heads, len(rows) // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)
