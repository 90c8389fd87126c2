"""Names in docstrings are as short as code has them; here they find what they mean anywhere in the package."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

PACKAGE = "lightning_rollout_is"
ROLES = "class|func|meth|exc|attr|data|obj|mod"
SHORT_NAME = re.compile(rf"(:(?:{ROLES}):`)(?=[A-Za-z_])(?![^`]*<)(?!lightning_rollout_is)")
NAPOLEON = 500
BARS = re.compile(r"(?<![`\\|])\|(?=\S[^|`]*\S\|)")
"""A size between bars, which docutils would take for a substitution."""
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[^)]*\)")
OUTSIDE_DOCS = {"../benchmarks/RESULTS.md": "results.md"}
"""Files that have a page of their own on the site, and lie elsewhere in the repository."""


def find_anywhere(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A leading dot makes Sphinx look in every module, as a reader does; what it would misread is escaped."""
    if what in ("attribute", "data", "property"):
        # Napoleon would take what stands before a colon in the first line for a type: an empty comment goes first.
        lines[:0] = ["..", ""]
    said = [line for line in lines if not line.startswith("Alias for field number")]
    lines[:] = [BARS.sub(r"\\|", SHORT_NAME.sub(r"\1.", line)) for line in said]


def find_home(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement) -> nodes.Node | None:
    """A name that a package passes on is documented where it was defined, or at the front door."""
    target = node.get("reftarget", "").lstrip(".~")
    if node.get("refdomain") != "py" or not target.startswith(f"{PACKAGE}."):
        return None
    module, _, name = target.rpartition(".")
    try:
        defined = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return None
    domain = env.get_domain("py")
    homes = f"{defined.__module__}.{defined.__qualname__}", f"{PACKAGE}.{name}"
    found = (domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], home, node, text) for home in homes)
    return next(filter(None, found), None)


def on_the_site(app: Sphinx, page: str, source: list[str]) -> None:
    """Links to files outside ``docs`` work in the repository as they stand; here they go to their pages, if any."""
    for file, its_page in OUTSIDE_DOCS.items():
        source[0] = source[0].replace(f"]({file})", f"]({its_page})")
    source[0] = OUTSIDE.sub(r"\1", source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Treat every docstring, every reference that found nothing, and every page."""
    app.connect("autodoc-process-docstring", find_anywhere, priority=NAPOLEON - 1)
    app.connect("missing-reference", find_home)
    app.connect("source-read", on_the_site)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
