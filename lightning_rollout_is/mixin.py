"""The LightningModule mixin: weights into the loss, statistics into a metric."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.first_look import FirstLook
from lightning_rollout_is.metrics.base import Groups
from lightning_rollout_is.metrics.measure import Measured
from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics
from lightning_rollout_is.types import CuSeqlens, TokenFloat, TokenMask

_log = logging.getLogger(__name__)

LOG_PROBS = ("old_log_prob", "rollout_log_prob")


class RolloutISMixin:
    """Adds rollout importance sampling to a ``LightningModule``, on either side of it in the base-class list.

    Call :meth:`configure_rollout_is` in ``__init__`` after ``super().__init__()``, and :meth:`rollout_is_loss` in
    ``training_step``, under automatic or manual optimisation. :class:`RolloutISCallback` does the logging. Where an
    optimizer runs the step several times (LBFGS), its batch is recorded as often: means and fractions stay right,
    ``rollout_is_seq_std`` takes the copies for more sequences.

    Example:
        >>> import torch, lightning
        >>> class Policy(RolloutISMixin, lightning.LightningModule):
        ...     def __init__(self, algorithm):
        ...         super().__init__()
        ...         self.configure_rollout_is(algorithm)
        >>> policy = Policy({"rollout_is_threshold": 2.0, "rollout_is": True})
        >>> old, rollout = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.0]])
        >>> policy.rollout_is_loss(torch.ones(1, 2), old, rollout, torch.ones(1, 2))
        tensor([[1.6487, 1.0000]])
    """

    rollout_is_config: RolloutISConfig
    """The settings, once configured."""
    rollout_is_metrics: RolloutISMetrics | None
    """The statistics since the last optimizer step, or ``None`` when the threshold is null."""
    rollout_is_first_look: FirstLook
    """What warns of log-probs that are valid and almost certainly not meant."""
    rollout_is_defers: bool = False
    """Whether a callback will tell all ranks of input that one of them refuses; set by the callback while it trains."""

    def configure_rollout_is(
        self, algorithm: RolloutISConfig | Mapping[Any, Any], *, details: bool = True, **metric_kwargs: Any
    ) -> None:
        """Take the settings and create the metric.

        Args:
            algorithm: A :class:`RolloutISConfig`, or the ``algorithm`` block as a dict or ``DictConfig``. A module that
                calls ``save_hyperparameters()`` takes the dict: Lightning refuses frozen dataclasses there.
            details: Record what the specification does not ask for as well (quantiles, histograms, the profile along
                the response, applied weights, standard errors), at the price of a second pass over the tokens.
            metric_kwargs: For :class:`RolloutISMetrics`. ``groups=["math", "code"]`` names parts of the data that get
                core values of their own. ``compile=True`` compiles weights and statistics into one
                kernel at the first batch. ``process_group`` names the ranks that hold different data,
                where others hold copies of it (tensor parallelism): copies would be counted again. Under
                ``ModelParallelStrategy`` that is ``self.device_mesh["data_parallel"].get_group()``, in
                ``configure_model``. Ranks outside the group are not told of input that is refused inside it.

        Raises:
            ValueError: A setting is not allowed.
            RuntimeError: ``super().__init__()`` has not been called yet.
        """
        if isinstance(self, torch.nn.Module) and "_modules" not in self.__dict__:
            raise RuntimeError("configure_rollout_is was called before super().__init__(); call it after")
        self.rollout_is_config = RolloutISConfig.of(algorithm)
        self.rollout_is_first_look = FirstLook()
        config, metric_kwargs = self.rollout_is_config, {"details": details, **metric_kwargs}
        self.rollout_is_metrics = RolloutISMetrics(config, **metric_kwargs) if config.enabled else None

    def rollout_is_loss(
        self,
        token_loss: TokenFloat,
        old_log_prob: TokenFloat,
        rollout_log_prob: TokenFloat,
        response_mask: TokenMask,
        cu_seqlens: CuSeqlens | None = None,
        groups: Groups | None = None,
    ) -> TokenFloat:
        """The token loss times the importance weights, and the statistics recorded.

        Args:
            token_loss: Loss of each token after PPO clipping, (batch, seq), or (tokens,) with ``cu_seqlens``.
            old_log_prob: Log-prob under the training policy at rollout time, nats, same shape.
            rollout_log_prob: Log-prob of the same token as the rollout engine gave it, same shape.
            response_mask: 1 on tokens that the policy generated, 0 elsewhere, same shape.
            cu_seqlens: Sequence boundaries of packed tokens.
            groups: Which of the declared groups each sequence belongs to: a list of names, or an integer tensor of
                their numbers, (sequences,), or one number for each token; -1 for none.

        Returns:
            The weighted token loss where ``rollout_is`` is true; ``token_loss`` itself where it is false or the
            threshold is null. Aggregate it over ``response_mask``: rejected tokens stay in the denominator.

        Raises:
            ValueError: Shapes or dtypes do not fit, or a log-prob is not a tensor. Where several ranks train under a
                :class:`RolloutISCallback`, all of them raise at the next point, not this one alone at once.
        """
        config = self._configured()
        if self.rollout_is_metrics is None:
            return token_loss
        inputs = old_log_prob, rollout_log_prob, response_mask, cu_seqlens, groups
        weights = self._rollout_is_measured(self.rollout_is_metrics, inputs, token_loss)
        if not config.applied:
            return token_loss
        if weights is None:
            # Zero, but with a gradient of zeros: the other ranks wait for one.
            return token_loss.masked_fill(torch.ones_like(token_loss, dtype=torch.bool), 0.0)
        # A rejected token may well have an infinite loss, and 0 * inf is NaN.
        return (token_loss * weights.weight).masked_fill(weights.weight == 0, 0.0)

    def rollout_is_weights(
        self,
        old_log_prob: TokenFloat,
        rollout_log_prob: TokenFloat,
        response_mask: TokenMask,
        cu_seqlens: CuSeqlens | None = None,
        groups: Groups | None = None,
    ) -> TokenFloat:
        """What multiplies the loss, for losses that place the weight themselves; the statistics are recorded.

        Args:
            old_log_prob: Log-prob under the training policy at rollout time, nats.
            rollout_log_prob: Log-prob of the same token as the rollout engine gave it.
            response_mask: 1 on tokens that the policy generated, 0 elsewhere.
            cu_seqlens: Sequence boundaries of packed tokens.
            groups: Which of the declared groups each sequence or token belongs to.

        Returns:
            Weights in [0, threshold], float32 or wider, without gradient. With ``rollout_is`` false or the threshold
            null: 1 on valid tokens, 0 elsewhere, so that a loss needs no branch.

        Raises:
            ValueError: Shapes or dtypes do not fit, or a log-prob is not a tensor. Where several ranks train under a
                :class:`RolloutISCallback`, all of them raise at the next point, not this one alone at once.
        """
        config = self._configured()
        if self.rollout_is_metrics is None:
            return _indicator(response_mask)
        inputs = old_log_prob, rollout_log_prob, response_mask, cu_seqlens, groups
        weights = self._rollout_is_measured(self.rollout_is_metrics, inputs)
        if not config.applied:
            return _indicator(response_mask)
        return torch.zeros_like(_indicator(response_mask)) if weights is None else weights.weight

    def _rollout_is_measured(
        self, metrics: RolloutISMetrics, inputs: tuple[Any, ...], token_loss: Tensor | None = None
    ) -> Measured | None:
        """The weights, recorded; ``None`` where input is refused that the callback will tell all ranks of."""
        recording = self._rollout_is_recording()
        try:
            weights = _weights_of(metrics, inputs, token_loss)
        except ValueError as refused:
            # Raised here, it would stop this rank alone, and the others would wait for its gradient.
            if not (recording and self.rollout_is_defers and _several_ranks() and isinstance(inputs[2], Tensor)):
                raise
            metrics.record_fault(_fault_of(inputs))
            _log.error("rank %d refused a batch: %s", torch.distributed.get_rank(), refused)
            return None
        if recording:
            metrics.update(*inputs, weights=weights)
            self.rollout_is_first_look.at(*inputs[:4])
        return weights

    def _configured(self) -> RolloutISConfig:
        if "rollout_is_config" not in self.__dict__:
            raise RuntimeError(
                f"{type(self).__name__} has no rollout importance sampling settings yet; call "
                "self.configure_rollout_is(cfg.algorithm) in __init__, after super().__init__()"
            )
        return self.rollout_is_config

    def _rollout_is_recording(self) -> bool:
        """Validation and the sanity check must not enter the statistics of a training step."""
        # Not `self.trainer`, which raises in a loop of the user's own, and stops torch.compile.
        trainer: Any = getattr(self, "_trainer", None)
        # Not `trainer.training`, which is false as well in a loop of the user's own after `fit`.
        return not any(getattr(trainer, stage, False) for stage in ("evaluating", "predicting"))


def _indicator(response_mask: Tensor) -> Tensor:
    """Leaves a loss as it is, malformed mask or not: who only monitors must not lose a run by it."""
    dtype = response_mask.dtype if response_mask.dtype == torch.float64 else torch.float32
    return (response_mask != 0).to(dtype)


def _weights_of(metrics: RolloutISMetrics, inputs: tuple[Any, ...], token_loss: Tensor | None) -> Measured:
    for name, tensor in zip(LOG_PROBS, inputs, strict=False):
        if not isinstance(tensor, Tensor):
            _refuse(name, tensor, metrics.config)
    weights = metrics.measure(*inputs)
    if token_loss is not None and token_loss.shape != weights.weight.shape:
        raise ValueError(
            f"token_loss {tuple(token_loss.shape)} and response_mask {tuple(weights.weight.shape)} must have one "
            "shape; aggregate the loss after it was weighted"
        )
    return weights


def _fault_of(inputs: tuple[Any, ...]) -> str:
    absent = [name for name, tensor in zip(LOG_PROBS, inputs, strict=False) if not isinstance(tensor, Tensor)]
    return f"absent_{absent[0]}" if absent else "unfit_inputs"


def _several_ranks() -> bool:
    ranks = torch.distributed
    return ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1


def _refuse(name: str, tensor: Any, config: RolloutISConfig) -> NoReturn:
    raise ValueError(
        f"{name} is {'None' if tensor is None else type(tensor).__name__}, and rollout_is_threshold = "
        f"{config.upper:g} needs it as a tensor; have the engine return log-probs "
        "(actor_rollout_ref.rollout.calculate_log_probs: true), or set rollout_is_threshold: null"
    )
