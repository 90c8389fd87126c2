"""The configuration reference, from the schema, the shipped YAML files and the constructors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from docstring_parser import parse

from extensions.markdown import code, plain, table
from lightning_rollout_is.config import RECOMMENDED_THRESHOLDS
from lightning_rollout_is.hydra_store import conf_directory

CONF = conf_directory()
NEITHER = ("?", 0)
"""Values that no setting allows: an error answers with what it does allow."""


def algorithm() -> str:
    """Every key of the ``algorithm`` block."""
    ranges = [[code(level), f"{low:g} to {high:g}"] for level, (low, high) in RECOMMENDED_THRESHOLDS.items()]
    return (
        settings("lightning_rollout_is.RolloutISConfig")
        + "\n\nRecommended for `rollout_is_threshold`; a value outside is a warning, not an error:\n\n"
        + table(["`rollout_is_level`", "recommended threshold"], ranges)
    )


def presets() -> str:
    """Every file of ``conf/algorithm``."""
    rows = []
    for file in sorted((CONF / "algorithm").glob("*.yaml")):
        values = {key: value for key, value in yaml.safe_load(file.read_text()).items() if key != "defaults"}
        set_to = "<br>".join(
            f"`{key.removeprefix('rollout_is_')}: {yaml_value(value)}`" for key, value in values.items()
        )
        rows.append([code(f"algorithm={file.stem}"), set_to, comment_of(file)])
    return table(["preset", "what it sets (behind `rollout_is_`)", "when to use it"], rows)


def options(group: str) -> str:
    """Every file of a folder in ``conf``: its comment, and itself.

    Args:
        group: Name of the folder.
    """
    files = sorted(file for file in (CONF / group).glob("*.yaml") if not file.stem.startswith("_"))
    return "\n\n".join(
        f"**`{group}={file.stem}`** {comment_of(file)}\n\n```yaml\n{without_comment(file)}\n```" for file in files
    )


def settings(of: str) -> str:
    """Every argument of a dataclass, a class or a function, from its signature and its docstring.

    Args:
        of: Dotted path.
    """
    module, _, name = of.rpartition(".")
    target = getattr(import_module(module), name)
    meanings, parameters = meanings_of(target), inspect.signature(target).parameters.values()
    absent = [parameter.name for parameter in parameters if parameter.name not in meanings]
    if absent:
        raise ValueError(f"the docstring of {of} says nothing of {', '.join(absent)}")
    return table(
        ["setting", "type", "default", "allowed", "meaning"],
        [
            [
                code(parameter.name),
                typed(parameter.annotation),
                default_of(parameter),
                allowed(target, parameter.name),
                meanings[parameter.name],
            ]
            for parameter in parameters
        ],
    )


def meanings_of(target: Callable[..., Any]) -> dict[str, str]:
    """Argument to what its docstring says."""
    return {param.arg_name: plain(param.description or "") for param in parse(inspect.getdoc(target) or "").params}


def allowed(target: Callable[..., Any], name: str) -> str:
    """What a setting may be, in the words of the error that refuses it; empty if nothing is refused."""
    return next(filter(None, (refusal(target, name, value) for value in NEITHER)), "")


def refusal(target: Callable[..., Any], name: str, value: object) -> str:
    """What an error says is allowed in place of a value; empty if there is none."""
    try:
        target(**{name: value})
    except ValueError as error:
        return str(error).rpartition("allowed: ")[2].replace("None", "null")
    except TypeError:
        pass
    return ""


def default_of(parameter: inspect.Parameter) -> str:
    """A default, set as code; empty where there is none."""
    if parameter.default is inspect.Parameter.empty or "factory" in repr(parameter.default):
        return ""
    return "must be given" if parameter.default == "???" else code(parameter.default)


def typed(annotation: object) -> str:
    """A type as a user writes it."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return code(name.replace("None", "null").replace("Mapping[Any, Any]", "mapping"))


def yaml_value(value: Any) -> str:
    """A value on one line of YAML."""
    return yaml.safe_dump(value).splitlines()[0]


def comment_of(file: Path) -> str:
    """What a YAML file says of itself at its top."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("# @package")]
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.removeprefix("#").strip() for line in lines[:first])


def without_comment(file: Path) -> str:
    """The rest of it."""
    lines = file.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(lines[first:])
