"""Values that travel to the host for a while, as from a CUDA device, on a machine without one."""

import math

import torch

from lightning_rollout_is import RolloutISCallback
from lightning_rollout_is.callbacks.transfer import Transfer


class LateTransfer(Transfer):
    """The values are in place only once somebody has waited for them."""

    under_way = True

    def __init__(self, tensor):
        super().__init__(tensor)
        self._sent, self._host = self._host, torch.full_like(self._host, math.nan)

    def wait(self):
        self._host.copy_(self._sent)
        return super().wait()


class LateCallback(RolloutISCallback):
    transfer = LateTransfer
