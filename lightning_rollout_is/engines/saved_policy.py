"""A policy as a folder that another program reads."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_rollout_is.engines.optional import require

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def save_policy(policy: PreTrainedModel, folder: Path) -> None:
    """Write a policy so that a reader of the folder sees its old files or its new ones, never half of one.

    Args:
        policy: What to save.
        folder: Where; made if it is missing.

    Raises:
        ImportError: transformers is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rollout-is-", dir=folder.parent) as fresh, _without_progress_bar():
        policy.save_pretrained(fresh)
        for file in os.listdir(fresh):
            shutil.move(os.path.join(fresh, file), folder / file)


@contextmanager
def _without_progress_bar() -> Iterator[None]:
    # One a refresh, in the middle of Lightning's.
    logging = require("transformers.utils.logging", extra="transformers")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
