"""Text as bytes: a vocabulary of 256 that needs no tokenizer file.

Three ASCII control characters, which no task writes, mark the places.
"""

from collections.abc import Iterable

PAD, BEGIN, END = 0, 2, 3
VOCABULARY_SIZE = 256


def encode_prompt(text: str) -> list[int]:
    """Token ids of a prompt, with the begin token before it.

    Example:
        >>> encode_prompt("31>")
        [2, 51, 49, 62]
    """
    return [BEGIN, *text.encode()]


def decode_response(token_ids: Iterable[int]) -> str:
    """Text of a response; its end token and invalid UTF-8 are left out.

    Example:
        >>> decode_response([49, 51, 3])
        '13'
    """
    return bytes(token for token in token_ids if token != END).decode(errors="ignore")
