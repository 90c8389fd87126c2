"""A copy to the host: complete when it is waited for, and independent of what it was made from."""

import pytest
import torch

from lightning_rollout_is.callbacks.transfer import Transfer
from tests.trainer.late import LateTransfer

VALUES = torch.arange(64, dtype=torch.float64)


@pytest.mark.parametrize("kind", [Transfer, LateTransfer])
def test_later_writes_do_not_reach_it(kind):
    source = VALUES.clone()
    transfer = kind(source)
    source.zero_()
    assert torch.equal(transfer.wait(), VALUES)
    assert torch.equal(transfer.wait(), VALUES)


def test_on_the_cpu_nothing_is_under_way():
    assert not Transfer(VALUES).under_way


def test_a_late_one_is_late():
    assert LateTransfer(VALUES).under_way
    assert LateTransfer(VALUES)._host.isnan().all()


def test_nothing_of_the_graph_is_kept():
    assert not Transfer(VALUES.clone().requires_grad_()).wait().requires_grad


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_from_the_gpu_it_goes_into_pinned_memory_without_a_wait():
    source = VALUES.cuda()
    torch.cuda._sleep(10**8)
    source.add_(1.0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        transfer = Transfer(source)
        source.zero_()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert transfer.under_way
    assert not torch.cuda.current_stream().query()  # the device is still busy: nobody has waited for it
    assert transfer.wait().is_pinned()
    assert torch.equal(transfer.wait(), VALUES + 1.0)
