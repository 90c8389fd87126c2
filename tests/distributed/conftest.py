import pytest

from tests.distributed.ranks import Ranks


@pytest.fixture(scope="session")
def ranks():
    pool = Ranks()
    yield pool
    pool.stop()
