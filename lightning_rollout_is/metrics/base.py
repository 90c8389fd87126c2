"""What all metrics of this package share: the packed state, how it is kept exact, and how ranks exchange it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from lightning_rollout_is.choices import LEVELS, MODES
from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.functional.layout import accumulation_dtype
from lightning_rollout_is.functional.statistics import Statistic
from lightning_rollout_is.functional.weights import ImportanceWeights
from lightning_rollout_is.metrics.compiled import compiled_measure
from lightning_rollout_is.metrics.group_ids import GroupNames
from lightning_rollout_is.metrics.measure import Measured, completed, measure
from lightning_rollout_is.metrics.packed import Packing
from lightning_rollout_is.types import CuSeqlens, TokenFloat, TokenMask

Groups = Sequence[str] | Tensor


class PackedMetric(Metric):
    """State and sync of the statistics given; no arithmetic of its own.

    Args:
        config: Settings with a threshold, or an ``algorithm`` mapping that holds them.
        statistics: What to accumulate.
        compile: Compile weights and statistics into one kernel with ``torch.compile``, at the first batch.
        groups: Names of the groups that the statistics keep apart, if one of them does.
        kwargs: As for any ``torchmetrics.Metric`` (``process_group``, ``sync_on_compute``, ...).

    Raises:
        ValueError: The threshold is null, which turns everything off.
    """

    full_state_update = False
    is_differentiable = False

    packed: Tensor

    def __init__(
        self,
        config: RolloutISConfig | Mapping[Any, Any],
        statistics: tuple[Statistic, ...],
        compile: bool = False,
        groups: GroupNames | None = None,
        **kwargs: Any,
    ) -> None:
        # A configuration file may spell every argument out as null.
        kwargs["dist_sync_fn"] = kwargs.get("dist_sync_fn") or gather
        super().__init__(**kwargs)
        self.config = RolloutISConfig.of(config)
        self.compiled = compile
        self.group_names = groups or GroupNames(())
        self.packing = Packing(statistics, _settings(self.config))
        self.add_state("packed", self.packing.empty(), dist_reduce_fx=self.packing.merge)

    def update(
        self,
        old_log_prob: TokenFloat,
        rollout_log_prob: TokenFloat,
        response_mask: TokenMask,
        cu_seqlens: CuSeqlens | None = None,
        groups: Groups | None = None,
        *,
        weights: ImportanceWeights | Measured | None = None,
    ) -> None:
        """Add a batch. No collective, no host sync.

        Args:
            old_log_prob: Training log-prob of each token at rollout time, nats; (batch, seq), or (tokens,).
            rollout_log_prob: Rollout log-prob of the same token.
            response_mask: 1 on tokens that the policy generated, 0 elsewhere.
            cu_seqlens: Sequence boundaries of packed tokens.
            groups: Which of the declared groups each sequence belongs to: a list of names, or an integer tensor of
                their numbers, (sequences,), or one number for each token; -1 for none.
            weights: What :func:`importance_weights` or :meth:`measure` gave for the same tensors under the same
                settings, if that exists already.

        Raises:
            TorchMetricsUserError: Called between ``sync()`` and ``unsync()``.
        """
        if self._is_synced:
            # The batch would vanish with unsync(), or count once a rank with the next sync.
            raise TorchMetricsUserError(
                f"{type(self).__name__} holds the data of all ranks since sync(); call unsync() before update()"
            )
        batch = old_log_prob, rollout_log_prob, response_mask
        if weights is None:
            weights = self.measure(*batch, cu_seqlens, groups)
        elif isinstance(weights, ImportanceWeights):
            ids = self.group_names.ids_of(groups, weights.weight.device)
            weights = Measured(
                weights.weight, self.packing.pack(completed(self.config, self.packing, weights, batch, ids))
            )
        self.packed = self.packing.add(self.packed.to(weights.packed.device), weights.packed)

    def measure(
        self,
        old_log_prob: TokenFloat,
        rollout_log_prob: TokenFloat,
        response_mask: TokenMask,
        cu_seqlens: CuSeqlens | None = None,
        groups: Groups | None = None,
    ) -> Measured:
        """The weights of a batch and what it would add, for :meth:`update`, which has the same arguments."""
        # What is no tensor is refused below, in words.
        ids = self.group_names.ids_of(groups, getattr(old_log_prob, "device", torch.device("cpu")))
        batch = old_log_prob, rollout_log_prob, response_mask, cu_seqlens, ids
        if self.compiled and not torch.compiler.is_compiling():
            return compiled_measure(self.config, self.packing)(*batch)
        return measure(self.config, self.packing, *batch)

    def weigh(
        self,
        old_log_prob: TokenFloat,
        rollout_log_prob: TokenFloat,
        response_mask: TokenMask,
        cu_seqlens: CuSeqlens | None = None,
        groups: Groups | None = None,
    ) -> TokenFloat:
        """Add a batch, and give the weights that multiply its loss: in [0, upper], its shape, without gradient.

        Example:
            >>> from lightning_rollout_is import RolloutISMetrics
            >>> metrics = RolloutISMetrics({"rollout_is_threshold": 2.0})
            >>> metrics.weigh(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.5, -3.0]]), torch.ones(1, 2))
            tensor([[1.6487, 2.0000]])
        """
        batch = old_log_prob, rollout_log_prob, response_mask, cu_seqlens, groups
        measured = self.measure(*batch)
        self.update(*batch, weights=measured)
        return measured.weight

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add what another metric of the same class and settings has counted, or a state dict with its vector.

        Raises:
            ValueError: The other metric has different settings.
        """
        if isinstance(incoming_state, PackedMetric) and incoming_state.packing != self.packing:
            raise ValueError(f"cannot merge statistics under {incoming_state.config} into those under {self.config}")
        super().merge_state(incoming_state)
        # torchmetrics keeps the last computed value, and warns of a metric without an update.
        self._computed = None
        self._update_count += incoming_state._update_count if isinstance(incoming_state, Metric) else 1

    def values(self) -> dict[str, Tensor]:
        """Every value of the statistics by name, float64 scalars; NaN where undefined."""
        return self.packing.compute(self.packed)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = ()) -> Any:
        # `fn` may cast to bfloat16, whose sums stop at 256: only the device of its result is taken over.
        self._computed = None
        super()._apply(fn, exclude_state=[*exclude_state, "packed"])
        device = fn(torch.empty(0, device=self.packed.device)).device
        self.packed = self._moved(self.packed, device)
        self._defaults["packed"] = self._moved(self._defaults["packed"], device)
        return self

    def _moved(self, vector: Any, device: torch.device) -> Tensor:
        # A vector that was made on the meta device has no values to move.
        source: Tensor = self.packing.empty() if vector.is_meta and device.type != "meta" else vector
        return source.to(device, accumulation_dtype(torch.empty(0, device=device)))


def gather(state: Tensor, group: Any = None) -> list[Tensor]:
    """The packed vectors of all ranks, in one collective: every rank's has the same size, so none has to ask."""
    ranks: Any = torch.distributed
    # Into one tensor: NCCL would gather a list by way of one, and copy each rank's part by a kernel of its own. Older
    # releases of torch call it all_gather_into_tensor, which newer ones deprecate.
    all_gather = getattr(ranks, "all_gather_single", None) or ranks.all_gather_into_tensor
    gathered = state.new_empty(ranks.get_world_size(group) * state.numel())
    all_gather(gathered, state.contiguous(), group=group)
    return list(gathered.view(-1, state.numel()).unbind())


def _settings(config: RolloutISConfig) -> tuple[float, ...]:
    level, mode = LEVELS.index(config.rollout_is_level), MODES.index(config.rollout_is_mode)
    return float(level), float(mode), config.upper, config.lower, config.veto or 0.0
