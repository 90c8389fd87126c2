"""Where weights pass on their way from the trainer to an engine."""

import os
import tempfile

FAST_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
"""A refresh goes through files; memory-backed ones where the system has them."""
