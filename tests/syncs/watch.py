"""Tensors without values, so that whoever reads one fails: how a training step proves that it never waits for a device.

On the meta device ``.item()``, ``float()``, ``if tensor``, ``.cpu()``, ``.tolist()``, ``nonzero``, boolean indexing and
every other operation whose result depends on values raise by themselves. Copies the other way would not, and they stop
the host as well, since its memory is pageable: those are watched for.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = "meta"
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
CONSTANTS = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)


class WaitError(AssertionError):
    """A GPU would have made the host wait here."""


class _Operations(TorchDispatchMode):
    """No operation on the device may need memory of the host, or a mask turned into indices."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        result = func(*args, **(kwargs or {}))
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        # A kernel takes a scalar tensor of the host as an argument; only a copy of one waits.
        here = [tensor for tensor in tensors if not tensor.is_meta and (tensor.ndim or func in COPIES)]
        if here and any(tensor.is_meta for tensor in [*tensors, *results]):
            raise WaitError(f"{func} takes a tensor of the host, {tuple(here[0].shape)}")
        if "index_put" in str(func) and any(tensor.dtype == torch.bool for tensor in tensors[1:]):
            raise WaitError(f"{func} turns a mask into indices")
        return result


class _Constants(TorchFunctionMode):
    """Tensors of Python numbers are made on the host, below the level at which operations are seen."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in CONSTANTS and result.is_meta and not (isinstance(args[0], torch.Tensor) and args[0] is result):
            raise WaitError(f"{func.__name__} copies Python numbers to the device")
        lists = isinstance(args[1], list) if func is torch.Tensor.__getitem__ else False
        if lists and args[0].is_meta:
            raise WaitError("indexing with a list copies it to the device")
        return result


@contextmanager
def no_waits():
    """Within, an operation that would make the host wait for a GPU raises."""
    with _Constants(), _Operations():
        yield


def batch(rows=3, length=4, mask_dtype=torch.int64, dtype=torch.float32, packed=False):
    """Log-probs, mask and boundaries (``None`` for a padded batch), without values."""
    shape = (rows * length,) if packed else (rows, length)
    old, rollout = (torch.empty(shape, dtype=dtype, device=DEVICE) for _ in range(2))
    mask = torch.empty(shape, dtype=mask_dtype, device=DEVICE)
    return old, rollout, mask, torch.empty(rows + 1, dtype=torch.int32, device=DEVICE) if packed else None
