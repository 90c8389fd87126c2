"""From the loss of each token to the scalar that is differentiated."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_rollout_is.functional.layout import layout_of
from lightning_rollout_is.losses.per_token import loss_dtype, mark_malformed, require_token_shape
from lightning_rollout_is.types import CuSeqlens, Scalar, TokenFloat, TokenMask

AggregationMode = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"]
AGGREGATION_MODES: tuple[str, ...] = get_args(AggregationMode)


def aggregate_loss(
    token_loss: TokenFloat,
    response_mask: TokenMask,
    mode: str = "token-mean",
    *,
    cu_seqlens: CuSeqlens | None = None,
    denominator: Tensor | float | int | None = None,
) -> Scalar:
    r"""Aggregate a token loss over the response tokens.

    With :math:`m` the mask, :math:`n_i = \sum_t m_{i,t}` and :math:`S` the number of sequences with :math:`n_i > 0`:

    ===================== ============================================================= =======================
    mode                  numerator                                                     denominator
    ===================== ============================================================= =======================
    token-mean            :math:`\sum_i \sum_t m_{i,t} L_{i,t}`                         :math:`\sum_i n_i`, tokens
    seq-mean-token-sum    :math:`\sum_i \sum_t m_{i,t} L_{i,t}`                         :math:`S`, sequences
    seq-mean-token-mean   :math:`\sum_i \frac{1}{n_i} \sum_t m_{i,t} L_{i,t}`           :math:`S`, sequences
    ===================== ============================================================= =======================

    A token that the importance weights masked or vetoed has loss 0 and stays in the denominator, which counts
    ``response_mask``; a sequence without a response token is in neither. ``token-mean`` weighs a sequence by its
    length, and so does ``seq-mean-token-sum``: its 1000-token sequence pulls 100 times as hard as its 10-token one.

    **Micro-batches and ranks.** Parts of different size do not average to the mean of the whole. Give every part the
    count :math:`D` of the whole, and they add up to it:

    .. math:: \sum_k \frac{\text{numerator}_k}{D} = \frac{\sum_k \text{numerator}_k}{\sum_k \text{denominator}_k}

    Where the trainer divides by itself, give it less to divide: Lightning divides the loss by
    ``accumulate_grad_batches`` and DDP and FSDP the gradient by the number of ranks, so pass
    ``D / (accumulate_grad_batches * world_size)``.

    Args:
        token_loss: (batch, seq) or (tokens,), any float dtype, after the importance weight. Nothing outside the mask
            reaches the value or the gradient, NaN and inf included.
        response_mask: 1 on tokens that the policy generated, 0 elsewhere; same shape. Another value makes the loss NaN.
        mode: ``"token-mean"``, ``"seq-mean-token-sum"`` or ``"seq-mean-token-mean"``.
        cu_seqlens: (sequences + 1,) boundaries of packed sequences.
        denominator: Positive number or scalar tensor in place of the batch's own count: tokens for ``token-mean``,
            sequences otherwise. 0, the count of an empty batch, is taken as 1.

    Returns:
        Scalar in float32 (float64 for float64), summed in float64. 0 with a graph if there is no response token.

    Raises:
        ValueError: Unknown mode, shapes that do not fit, or a negative or not finite number as ``denominator``.

    Source:
        Yu et al. 2025, "DAPO", section 3.3 (token-mean); Shao et al. 2024, "DeepSeekMath" (seq-mean-token-mean);
        Liu et al. 2025, "Understanding R1-Zero-like training" (what each of them favours).

    Example:
        >>> loss, mask = torch.tensor([[1.0, 1.0, 1.0], [4.0, 9.0, 9.0]]), torch.tensor([[1, 1, 1], [1, 0, 0]])
        >>> [aggregate_loss(loss, mask, mode).item() for mode in AGGREGATION_MODES]
        [1.75, 3.5, 2.5]
        >>> aggregate_loss(loss[:1], mask[:1], denominator=4) + aggregate_loss(loss[1:], mask[1:], denominator=4)
        tensor(1.7500)
    """
    if mode not in AGGREGATION_MODES:
        raise ValueError(f"mode = {mode!r} is not allowed; allowed: {', '.join(AGGREGATION_MODES)}")
    require_token_shape(response_mask, token_loss=token_loss)
    layout = layout_of(response_mask, cu_seqlens)
    lengths = layout.sum(response_mask != 0)
    sums = layout.sum(mark_malformed(token_loss.where(response_mask != 0, 0.0), response_mask))
    if mode == "seq-mean-token-mean":
        sums = sums / lengths.clamp(min=1.0)
    count = lengths.sum() if mode == "token-mean" else (lengths > 0).sum()
    return (sums.sum() / _denominator(denominator, count)).to(loss_dtype(token_loss))


def _denominator(given: Tensor | float | int | None, count: Tensor) -> Tensor | float | int:
    if given is None:
        return count.clamp(min=1)
    if isinstance(given, Tensor):
        if given.ndim:
            raise ValueError(f"denominator has shape {tuple(given.shape)}; give a number or a scalar tensor")
        return given.detach().where(given != 0, 1)
    if not 0 <= given < torch.inf:
        raise ValueError(f"denominator = {given!r} is not allowed; give a positive count of tokens or sequences")
    return given or 1
