"""What is alive before a test stays out of every collection and every search: there are a million such objects."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _only_new_objects():
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
