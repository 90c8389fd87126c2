"""Sphinx: `make docs`. Nothing is fetched, and every warning is an error."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

project = "lightning-rollout-is"
author = "the authors of lightning-rollout-is"
version = release = version_of(project)

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "extensions.formulas",
    "extensions.references",
    "extensions.generated",
]
exclude_patterns = ["extensions", "pictures/*.py"]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3

napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Sentences, not "type: meaning", which Napoleon would make of the first colon.
napoleon_custom_sections = ["Returns", "Source"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
add_module_names = False
autodoc_preserve_defaults = True

nitpicky = True
nitpick_ignore_regex = [
    # Names of other packages, whose inventories would have to be fetched.
    (r"py:exc", "TorchMetricsUserError|MisconfigurationException"),
    (r"py:.*", r"(torch|torchmetrics|lightning|pytorch_lightning|matplotlib|omegaconf|pathlib|collections|typing)\..*"),
]

html_theme = "furo"
html_title = "lightning-rollout-is"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "drawn"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2f6fde", "color-brand-content": "#2f6fde"},
    "dark_css_variables": {"color-brand-primary": "#7da7f5", "color-brand-content": "#7da7f5"},
}
copybutton_exclude = ".linenos, .gp, .go"
