"""Packages that only one engine or recipe needs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Import a module, or say which extra of this package brings it.

    Args:
        module: Dotted module name.
        extra: Name of the extra in ``pyproject.toml``.

    Raises:
        ImportError: The module is not installed.

    Example:
        >>> require("no_such_engine", extra="ctranslate2")
        Traceback (most recent call last):
        ImportError: no_such_engine is not installed; install it with: pip install 'lightning-rollout-is[ctranslate2]'
    """
    try:
        with _quiet_logging():
            return import_module(module)
    except ModuleNotFoundError as error:
        message = f"{error.name} is not installed; install it with: pip install 'lightning-rollout-is[{extra}]'"
        raise ImportError(message) from error


@contextmanager
def _quiet_logging() -> Iterator[None]:
    # torchao, which transformers imports where it is installed, logs warnings about GPU kernels on every import.
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
