"""The pages as text."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def text(page):
    return (DOCS / f"{page}.md").read_text()


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", text(page), re.DOTALL)
