import pytest

from tests.distributed.ranks import Ranks


@pytest.fixture(scope="session")
def ranks(tmp_path_factory):
    pool = Ranks(2, tmp_path_factory.mktemp("rendezvous") / "file")
    yield pool
    pool.stop()
