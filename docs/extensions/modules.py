"""Every public module of a package, so that each docstring is read and each of its references checked."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import lightning_rollout_is


def modules(package: str) -> str:
    """A section for the package itself and for each module under it.

    Args:
        package: Dotted name. Of the whole package it is the modules that lie in no folder.
    """
    whole = package == lightning_rollout_is.__name__
    names = names_beside(package) if whole else names_in(package)
    return "\n\n".join(_section(name) for name in names)


def names_beside(package: str) -> Iterator[str]:
    """The modules in a package that are no packages."""
    path = import_module(package).__path__
    yield from (module.name for module in pkgutil.iter_modules(path, prefix=f"{package}.") if not module.ispkg)


def names_in(package: str) -> Iterator[str]:
    """The package, and what lies in it at any depth; names that begin with an underscore are left out."""
    yield package
    path = getattr(import_module(package), "__path__", ())
    for module in pkgutil.iter_modules(path, prefix=f"{package}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            yield from names_in(module.name)


def _section(name: str) -> str:
    """Names of the front door are documented there."""
    elsewhere = sorted(set(lightning_rollout_is.__all__) & vars(import_module(name)).keys())
    options = [
        ":members:",
        ":ignore-module-all:",
        *([f":exclude-members: {', '.join(elsewhere)}"] if elsewhere else []),
    ]
    lines = [f".. automodule:: {name}", *(f"   {option}" for option in options)]
    links = ", ".join(f"{{py:obj}}`~lightning_rollout_is.{each}`" for each in elsewhere)
    pointer = f"\n\nAt the [front door](index.md): {links}." if elsewhere else ""
    return f"## `{name}`\n\n```{{eval-rst}}\n" + "\n".join(lines) + "\n```" + pointer
