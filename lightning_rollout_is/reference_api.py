"""The reference implementation's entry point: tensors in, weights and a dict of floats out."""

from __future__ import annotations

from torch import Tensor

from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.functional.weights import importance_weights
from lightning_rollout_is.metrics.rollout_is import RolloutISMetrics
from lightning_rollout_is.types import TokenFloat, TokenMask


def compute_rollout_importance_weights(
    old_log_prob: TokenFloat,
    rollout_log_prob: TokenFloat,
    response_mask: TokenMask,
    rollout_is_level: str = "token",
    rollout_is_mode: str = "truncate",
    rollout_is_threshold: float | None = None,
    rollout_is_threshold_lower: float | None = None,
    rollout_is_veto_threshold: float | None = 1e-4,
) -> tuple[Tensor | None, dict[str, float]]:
    """Weights and metrics of one batch, under the signature of verl's ``mismatch_helper``.

    It reads the numbers back to the host; inside a training step use :class:`RolloutISMixin`, which does not.

    Args:
        old_log_prob: Training log-prob of each sampled token at rollout time, nats, (batch, seq).
        rollout_log_prob: Rollout log-prob of the same token, (batch, seq).
        response_mask: 1 on tokens that the policy generated, 0 elsewhere, (batch, seq).
        rollout_is_level: ``"token"``, ``"sequence"`` or ``"geometric"``.
        rollout_is_mode: ``"truncate"`` or ``"mask"``.
        rollout_is_threshold: Upper threshold; ``None`` computes nothing.
        rollout_is_threshold_lower: Lower threshold; ``None`` means 1 / upper.
        rollout_is_veto_threshold: Token ratio under which a sequence is rejected; ``None`` for no veto.

    Returns:
        Weights (batch, seq) in [0, upper], without gradient, and ``{"mismatch/<name>": float}`` with the values that
        are defined; ``(None, {})`` with the threshold ``None``.

    Raises:
        ValueError: A setting is not allowed, shapes differ, or the mask holds other values than 0 and 1.

    Example:
        >>> import torch
        >>> old, rollout, mask = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.0]]), torch.tensor([[1, 1]])
        >>> weights, metrics = compute_rollout_importance_weights(old, rollout, mask, rollout_is_threshold=2.0)
        >>> weights, round(metrics["mismatch/mismatch_kl"], 4)
        (tensor([[1.6487, 1.0000]]), -0.25)
    """
    config = RolloutISConfig(
        rollout_is_threshold=rollout_is_threshold,
        rollout_is_threshold_lower=rollout_is_threshold_lower,
        rollout_is_level=rollout_is_level,
        rollout_is_mode=rollout_is_mode,
        rollout_is_veto_threshold=rollout_is_veto_threshold,
    )
    if not config.enabled:
        return None, {}
    weights = importance_weights(old_log_prob, rollout_log_prob, response_mask, **config.weight_options)
    require_zeros_and_ones(response_mask)
    metrics = RolloutISMetrics(config, sync_on_compute=False)
    metrics.update(old_log_prob, rollout_log_prob, response_mask, weights=weights)
    values = {name: float(value) for name, value in metrics.compute().items()}
    return weights.weight, {name: value for name, value in values.items() if value == value}


def require_zeros_and_ones(response_mask: Tensor) -> None:
    """Raise ``ValueError`` for a mask with other values; waits for the device."""
    other = response_mask[(response_mask != 0) & (response_mask != 1)]
    if other.numel():
        raise ValueError(f"response_mask holds {other[0].item():g}; allowed: 0 and 1 (or a bool tensor)")
