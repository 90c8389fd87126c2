"""What to say of faulty input, and whether training can go on after it. Every rank is told of every rank's faults."""

from __future__ import annotations

from collections.abc import Collection

from lightning_rollout_is.config import RolloutISConfig

ALL_MISSING = (
    "no token has a usable rollout log-prob: every importance weight is 0 and nothing can be measured; have the engine "
    "return the log-prob of each sampled token (actor_rollout_ref.rollout.calculate_log_probs: true)"
)
ABSENT = (
    "{name} is not a tensor on at least one rank, and rollout_is_threshold = {upper:g} needs it in every batch of "
    "every rank, dummy and padding batches too; have the engine return log-probs "
    "(actor_rollout_ref.rollout.calculate_log_probs: true), or set rollout_is_threshold: null"
)
REFUSED = {
    "absent_old_log_prob": ABSENT.replace("{name}", "old_log_prob"),
    "absent_rollout_log_prob": ABSENT.replace("{name}", "rollout_log_prob"),
    "unfit_inputs": (
        "shapes or dtypes do not fit on at least one rank, and rollout_is_threshold = {upper:g} needs them to: "
        "token_loss, old_log_prob, rollout_log_prob and response_mask must have one shape, (batch, seq) or (tokens,) "
        "with integer cu_seqlens, and log-probs are floating point; that rank's error log says what it got"
    ),
}
MALFORMED = {
    "malformed_mask": (
        "response_mask holds values other than 0 and 1; give 1 on tokens that the policy generated and 0 elsewhere"
    ),
    "unfit_boundaries": (
        "cu_seqlens does not fit its tokens; it must start with 0, never fall and end with the number of tokens"
    ),
}


def refusal(found: Collection[str], config: RolloutISConfig) -> str | None:
    """Why training cannot go on, or ``None``; the same words on every rank.

    Malformed values stop training only where weights are applied: the weights were NaN, and by now so is every
    parameter, on all ranks. Hours of NaN, and checkpoints of it, would serve nobody. Where the statistics are only
    monitored the loss is sound, and a warning is enough.

    Args:
        found: Fields of :class:`FaultMaxima` that some rank has seen.
        config: The settings of the module.

    Example:
        >>> refusal({"malformed_mask"}, RolloutISConfig(2.0)) is None
        True
        >>> refusal({"absent_rollout_log_prob"}, RolloutISConfig(2.0))[:50]
        'rollout_log_prob is not a tensor on at least one r'
    """
    for fault, message in REFUSED.items():
        if fault in found:
            return message.format(upper=config.upper)
    malformed = malformation(found)
    if malformed is None or not config.applied:
        return None
    return (
        f"{malformed}. The importance weights were NaN (rollout_is: true), and an optimizer has stepped with them: "
        "mend the data and go on from the last checkpoint, or only monitor (rollout_is: false)"
    )


def malformation(found: Collection[str]) -> str | None:
    """What is wrong with the values of some batch, or ``None``.

    Example:
        >>> malformation({"unfit_boundaries"})[:31]
        'cu_seqlens does not fit its tok'
    """
    return next((message for fault, message in MALFORMED.items() if fault in found), None)
