"""Formulas as MathML, which browsers draw by themselves: no script, no font, nothing fetched."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator

# MathML knows no blackboard bold of its own any more; Unicode does.
BLACKBOARD_ONE = (r"\mathbb{1}", "\N{MATHEMATICAL DOUBLE-STRUCK DIGIT ONE}")


def formula(latex: str, display: str) -> str:
    """A formula in MathML.

    Args:
        latex: What stands between the dollars.
        display: ``"inline"`` or ``"block"``.

    Raises:
        ExtensionError: It aligns lines, which the converter does not know.
    """
    if "&" in latex:
        raise ExtensionError(f"write each line as a formula of its own, without '&': {latex}")
    return str(convert(latex.replace(*BLACKBOARD_ONE), display=display))


def inline_formula(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula of a line."""
    translator.body.append(formula(node.astext(), "inline"))
    raise nodes.SkipNode


def displayed_formula(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula that stands alone."""
    translator.body.append(f'<div class="formula">{formula(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer MathML for HTML."""
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
