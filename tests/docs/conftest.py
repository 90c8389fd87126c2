import sys
import warnings
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
# What the site is made with is no part of the package.
sys.path += [str(DOCS), str(DOCS / "pictures")]

with warnings.catch_warnings():
    # ziamath finds its font by a call that Python deprecates.
    warnings.filterwarnings("ignore", "path is deprecated", DeprecationWarning)
    import ziamath  # noqa: F401
