"""Parts of pages that are made from the code when the site is built, so that they cannot fall behind it."""

from __future__ import annotations

from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from extensions import configuration, health, modules

PARTS = {
    "algorithm": configuration.algorithm,
    "presets": configuration.presets,
    "settings": configuration.settings,
    "options": configuration.options,
    "thresholds": health.thresholds,
    "symptoms": health.symptoms,
    "rules": health.rules,
    "limits": health.limits,
    "modules": modules.modules,
}
"""Name of a part to what writes it in Markdown."""


class Generated(SphinxDirective):
    """A part of a page: its name, and what it is about."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True
    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """The part, as if it were written in the page."""
        name, *about = self.arguments
        if name not in PARTS:
            raise self.error(f"no part is called {name!r}; there are: {', '.join(PARTS)}")
        return self.parse_text_to_nodes(PARTS[name](*about), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive."""
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
