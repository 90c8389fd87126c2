"""What a tokenizer is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids and back; the module ``byte_tokens`` is one."""

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a prompt, with whatever the policy wants before it."""
        ...

    def decode_response(self, token_ids: Iterable[int]) -> str:
        """Text of a response, without its end token."""
        ...
