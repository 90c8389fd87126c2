"""A copy to the host that is under way."""

from __future__ import annotations

import torch
from torch import Tensor


class Transfer:
    """Copies a tensor to the host; from a CUDA device without waiting for it, into pinned memory.

    The copy holds the values that the tensor has in the order of its stream, whatever is written into it later.

    Args:
        tensor: What to copy, any shape and device.

    Example:
        >>> Transfer(torch.tensor([1.0, 2.0])).wait()
        tensor([1., 2.])
    """

    def __init__(self, tensor: Tensor) -> None:
        # Elsewhere a copy that does not wait could be read before it is complete.
        asynchronous = tensor.is_cuda
        self._host = tensor.detach().to("cpu", non_blocking=asynchronous, copy=True)
        self._arrival = torch.cuda.current_stream(tensor.device).record_event() if asynchronous else None

    @property
    def under_way(self) -> bool:
        """Whether :meth:`wait` may have to wait. Never asks the device, whose answer would differ between ranks."""
        return self._arrival is not None

    def wait(self) -> Tensor:
        """The values, once they have arrived."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._host
