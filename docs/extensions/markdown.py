"""Markdown that code writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

ROLE = re.compile(r":\w+:`~?\.?([^`]+)`")
CONFIGURATION_LINE = re.compile(
    r"(?<![\w`.])((?:algorithm|actor_rollout_ref|data|callbacks)[.=][\w.]+(?:: [\w.-]*\w)?)(?![\w`])"
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A table in Markdown.

    Example:
        >>> print(table(["a", "b"], [["1", "x|y"]]))
        | a | b |
        |---|---|
        | 1 | x\|y |
    """
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in (head, *cells)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def plain(docstring: str) -> str:
    """The text of a docstring, in Markdown and on one line.

    Example:
        >>> plain("Holds if :class:`.Rules` says ``None``.")
        'Holds if `Rules` says `None`.'
    """
    return " ".join(ROLE.sub(r"`\1`", docstring).replace("``", "`").split())


def marked(text: str) -> str:
    """Text whose lines of configuration are set as code.

    Example:
        >>> marked("set algorithm.rollout_is: true, and look")
        'set `algorithm.rollout_is: true`, and look'
    """
    return CONFIGURATION_LINE.sub(r"`\1`", text)


def code(value: object) -> str:
    """A value as YAML would have it, set as code.

    Example:
        >>> [code(value) for value in (None, True, 1e-4, "token")]
        ['`null`', '`true`', '`0.0001`', '`token`']
    """
    names = {None: "null", True: "true", False: "false"}
    named = names.get(value) if value is None or isinstance(value, bool) else None  # type: ignore[call-overload]
    return f"`{value if named is None else named}`"
