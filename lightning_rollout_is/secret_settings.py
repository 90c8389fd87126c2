"""Settings whose value must not travel with a page or a curve."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

SECRET = re.compile(r"(password|passwd|secret|api_?key|(access|auth|api)_?token)$", re.IGNORECASE)
Value = TypeVar("Value")


def hide_secrets(settings: Mapping[str, Value]) -> dict[str, Value | str]:
    """The settings, without the values of those whose dotted key ends like the name of a password or a key.

    Example:
        >>> hide_secrets({"logger.api_key": "k-1", "algorithm.rollout_is_threshold": 2.0})
        {'logger.api_key': '(hidden)', 'algorithm.rollout_is_threshold': 2.0}
    """
    return {key: "(hidden)" if SECRET.search(key) else value for key, value in settings.items()}
