"""From the names of groups, as a batch has them, to numbers on its device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

NOT_DECLARED = "counted in rollout_is_ungrouped_fraction alone; add it to groups to have its curves"


class GroupNames:
    """The groups that a metric keeps apart.

    Args:
        names: Unique names, in the order of their numbers.

    Raises:
        ValueError: A name is empty, or there twice.

    Example:
        >>> GroupNames(("math", "code")).ids_of(["code", "math"], torch.device("cpu"))
        tensor([1, 0])
    """

    def __init__(self, names: Sequence[str]) -> None:
        if isinstance(names, str) or not all(isinstance(name, str) and name.strip() for name in names):
            raise ValueError(f"groups = {names!r} is not allowed; allowed: a list of names, such as ['math', 'code']")
        self.names = tuple(names)
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"groups = {list(names)!r} has a name twice; each may be there once")
        self._number_of = {name: number for number, name in enumerate(self.names)}
        self._warned: set[str] = set()

    def ids_of(self, groups: Any, device: torch.device) -> Tensor | None:
        """Numbers of groups, int64.

        Args:
            groups: A name for each sequence, or numbers in an integer tensor, for each sequence or each token; a number
                that none of the names has, as -1, is no group.
            device: Of the batch.

        Raises:
            ValueError: Groups are given and none are declared, or they are neither names nor integers.
        """
        if groups is None:
            return None
        if not self.names:
            raise ValueError(
                "groups are given and none are declared; name them: configure_rollout_is(..., groups=[...])"
            )
        if isinstance(groups, Tensor):
            if groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool:
                raise ValueError(f"groups has dtype {groups.dtype}; it must be an integer tensor, or a list of names")
            return groups.to(device, torch.int64)
        if isinstance(groups, str):
            raise ValueError(f"groups is the name {groups!r}; it must be a list with a name for each sequence")
        return torch.tensor([self._number(str(name)) for name in groups], dtype=torch.int64).to(
            device, non_blocking=True
        )

    def _number(self, name: str) -> int:
        if name not in self._number_of and name not in self._warned:
            self._warned.add(name)
            declared = ", ".join(self.names)
            rank_zero_warn(f"group {name!r} is not one of the declared ones ({declared}); it is {NOT_DECLARED}")
        return self._number_of.get(name, -1)
