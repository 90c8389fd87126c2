"""The watch sees what would make a GPU wait, and nothing else."""

import pytest
import torch

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics
from tests.syncs.watch import DEVICE, WaitError, batch, no_waits

X, MASK = torch.empty(3, 4, device=DEVICE), torch.empty(3, 4, dtype=torch.bool, device=DEVICE)
HOST = torch.ones(3, 4)
READS = {
    "item": lambda: X.sum().item(),
    "float": lambda: float(X.sum()),
    "if": lambda: bool(MASK.any()),
    "cpu": lambda: X.cpu(),
    "cpu without waiting": lambda: X.to("cpu", non_blocking=True),
    "tolist": lambda: X.tolist(),
    "numpy": lambda: X.numpy(),
    "range": lambda: range(X.long().sum()),
    "boolean indexing": lambda: X[MASK],
    "nonzero": lambda: MASK.nonzero(),
    "masked_select": lambda: X.masked_select(MASK),
    "unique": lambda: X.unique(),
    "equal": lambda: torch.equal(X, X),
    "allclose": lambda: torch.allclose(X, X),
    "repeat_interleave": lambda: X.repeat_interleave(X[:, 0].long(), 0),
    "one_hot": lambda: torch.nn.functional.one_hot(X.long()),
    "bincount": lambda: X.long().flatten().bincount(),
    "a size": lambda: torch.full((2,), X.sum()),
}
COPIES = {
    "to": lambda: HOST.to(DEVICE),
    "copy_": lambda: torch.empty_like(X).copy_(HOST),
    "a scalar": lambda: torch.ones(()).to(DEVICE),
    "new_tensor": lambda: X.new_tensor([1.0, 2.0]),
    "tensor": lambda: torch.tensor(1.0, device=DEVICE),
    "as_tensor": lambda: torch.as_tensor([1.0], device=DEVICE),
    "indices of the host": lambda: X[torch.tensor([0, 1])],
    "a list of indices": lambda: X[[0, 1]],
    "a mask into which values go": lambda: X.clone().index_put_((MASK,), X[:, 0]),
}
FREE = {
    "where": lambda: X.where(MASK, 0.0),
    "masked_fill": lambda: X.masked_fill(MASK, 0.0),
    "new_full": lambda: X.new_full((2,), 1.0),
    "arange": lambda: torch.arange(3, device=DEVICE),
    "a number": lambda: 2.0 * X + 1.0,
    "a scalar of the host as an argument": lambda: X + torch.ones(()),
    "repeat_interleave of known size": lambda: torch.repeat_interleave(X[:, 0].long(), output_size=9),
    "gather": lambda: X.gather(1, X[:, :1].long()),
    "as_tensor of a tensor": lambda: torch.as_tensor(X),
    "on the host": lambda: torch.tensor([1.0, 2.0]).sum().item(),
}


@pytest.mark.parametrize("name", READS | COPIES)
def test_what_waits_raises(name):
    with pytest.raises((WaitError, RuntimeError, NotImplementedError, TypeError)), no_waits():
        (READS | COPIES)[name]()


@pytest.mark.parametrize("name", FREE)
def test_what_does_not_wait_passes(name):
    with no_waits():
        FREE[name]()


STRAYS = {
    "float": lambda weights: float(weights.weight.max()),
    "item": lambda weights: weights.weight.mean().item(),
    "a branch": lambda weights: None if weights.weight.isnan().any() else weights,
    "cpu": lambda weights: weights.weight.cpu(),
    "boolean indexing": lambda weights: weights.weight[weights.weight > 1.0],
    "numbers": lambda weights: weights.weight.new_tensor([0.0, 1.0]),
}


@pytest.mark.parametrize("name", STRAYS)
def test_one_of_them_strayed_into_an_update_is_found(name):
    class Strays(RolloutISMetrics):
        def update(self, old_log_prob, rollout_log_prob, response_mask, cu_seqlens=None, *, weights=None):
            STRAYS[name](weights)

    from lightning_rollout_is import importance_weights

    inputs = batch()
    metrics = Strays(RolloutISConfig(2.0)).to(DEVICE)
    weights = importance_weights(*inputs[:3], upper=2.0)
    with pytest.raises((WaitError, RuntimeError, NotImplementedError)), no_waits():
        metrics.update(*inputs, weights=weights)
