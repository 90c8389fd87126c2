"""Formulas as drawings in the page: no script, no font of the reader's, nothing fetched."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

EM = 14.5
"""Units of a drawing, whose letters are 16 high, that make one em of the text around it."""
# The converter leaves blackboard bold out of digits; Unicode has it.
BLACKBOARD_ONE = (r"\mathbb{1}", "\N{MATHEMATICAL DOUBLE-STRUCK DIGIT ONE}")

# Glyphs that several drawings of a page share would be those of the first one's size.
ziamath.config.svg2 = False


def drawn(latex: str, inline: bool) -> str:
    """A formula as an ``<svg>`` that stands on the line and has its colour.

    Args:
        latex: What stands between the dollars.
        inline: Within a line of text.
    """
    formula = ziamath.Latex(latex.replace(*BLACKBOARD_ONE), size=16.0, color="currentColor", inline=inline)
    svg = formula.svgxml()
    width, height = (float(svg.attrib.pop(side)) / EM for side in ("width", "height"))
    depth = formula.getyofst() / EM if inline else 0.0
    svg.set("style", f"width: {width:.3f}em; height: {height:.3f}em; vertical-align: {depth:.3f}em")
    svg.set("role", "img")
    svg.set("aria-label", " ".join(latex.split()))
    return ElementTree.tostring(svg, encoding="unicode")


def inline_formula(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula of a line."""
    translator.body.append(drawn(node.astext(), inline=True))
    raise nodes.SkipNode


def displayed_formula(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula that stands alone."""
    translator.body.append(f'<div class="formula">{drawn(node.astext(), inline=False)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer the drawings for HTML."""
    app.add_html_math_renderer("drawn", (inline_formula, None), (displayed_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
