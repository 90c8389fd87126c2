import sys
from pathlib import Path

# What the site is made with is no part of the package.
sys.path.append(str(Path(__file__).parents[2] / "docs"))
