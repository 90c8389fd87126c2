import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors of a few numbers take longer in two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
