"""The published implementation to compare with: verl's, read from the installed wheel and run without its framework.

The wheel's own source runs, with two changes. Its imports pull in a training framework, so that the two functions that
it uses come from the wheel's source one by one, and its container is a plain dict. And its five percentiles are left
out, which later versions dropped and ours does not compute: they would take half of its time.
"""

import ast
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

WHEEL = "verl"
SOURCE = "verl/trainer/ppo/mismatch_helper.py"
MASKED = "verl/utils/torch_functional.py"
IMPORTS = ("import verl.utils.torch_functional as verl_F\n", "from verl.protocol import DataProto\n")
PERCENTILES = "    # Percentile metrics"
AFTER_PERCENTILES = "    return metrics\n"


class PlainDict(dict):
    """Stands in for the wheel's container of tensors."""

    @classmethod
    def from_dict(cls, tensors: dict[str, torch.Tensor]) -> "PlainDict":
        return cls(tensors)


def reference() -> Callable[..., tuple[dict[str, torch.Tensor], dict[str, float]]]:
    """`compute_rollout_importance_weights` of the installed wheel, without percentiles.

    Raises:
        ModuleNotFoundError: The wheel is not installed.
        RuntimeError: Its text is not the one that these changes are made for.
    """
    source = _without_percentiles(_without_imports(_text(SOURCE)))
    names: dict[str, Any] = {
        "verl_F": _functions(_text(MASKED), "masked_sum", "masked_mean"),
        "DataProto": PlainDict,
    }
    exec(compile(source, SOURCE, "exec"), names)
    return names["compute_rollout_importance_weights"]


def version() -> str:
    return importlib.metadata.version(WHEEL)


def _text(path: str) -> str:
    try:
        wheel = importlib.metadata.distribution(WHEEL)
    except importlib.metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            f"{WHEEL} is not installed; `make bench` installs it, or pip, with --no-deps"
        ) from error
    return Path(str(wheel.locate_file(path))).read_text()


def _functions(source: str, *names: str) -> SimpleNamespace:
    """Some functions of a module that cannot be imported."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name in names]
    if sorted(node.name for node in found) != sorted(names):
        raise _changed(f"the functions {names} once each", MASKED)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(ast.Module(found, []), MASKED, "exec"), scope)
    return SimpleNamespace(**{name: scope[name] for name in names})


def _without_imports(source: str) -> str:
    for line in IMPORTS:
        if source.count(line) != 1:
            raise _changed(f"the line {line!r} once", SOURCE)
        source = source.replace(line, "")
    return source


def _without_percentiles(source: str) -> str:
    before, found, rest = source.partition(PERCENTILES)
    removed, end, after = rest.partition(AFTER_PERCENTILES)
    if not (found and end) or removed.count("torch.quantile(") != 5 or "torch.quantile(" in before + after:
        raise _changed("five percentiles in one place", SOURCE)
    return before + end + after


def _changed(expected: str, path: str) -> RuntimeError:
    return RuntimeError(f"{WHEEL} {version()} does not have {expected} in {path}; this comparison is made for 0.6.0")
