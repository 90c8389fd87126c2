"""Schemas of the shipped configuration, for Hydra: they type the keys; values are checked by ``RolloutISConfig``.

Hydra's plugin discovery imports this file in every application of an environment, so it needs neither torch nor
Lightning.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

PROVIDER = "lightning_rollout_is"


@dataclass
class AlgorithmSchema:
    """The keys, types and defaults of ``RolloutISConfig``; written again because Hydra composes no frozen dataclass."""

    rollout_is_threshold: float | None = None
    rollout_is: bool = False
    rollout_is_threshold_lower: float | None = None
    rollout_is_level: str = "token"
    rollout_is_mode: str = "truncate"
    rollout_is_veto_threshold: float | None = 1e-4


@dataclass
class DataSchema:
    """``data``, the size of a batch.

    Args:
        train_batch_size: Prompts in one batch of responses.
        max_response_length: Tokens that a response may have.
    """

    train_batch_size: int = 32
    max_response_length: int = 16


@dataclass
class OptimSchema:
    """``actor_rollout_ref.actor.optim``, the optimizer's settings.

    Args:
        lr: Learning rate.
        weight_decay: Decoupled weight decay.
    """

    lr: float = 1e-3
    weight_decay: float = 0.0


@dataclass
class ActorSchema:
    """``actor_rollout_ref.actor``, the update of the policy.

    Args:
        ppo_epochs: Passes over one batch of responses.
        ppo_mini_batch_size: Prompts in one optimizer step.
        clip_ratio_low: The PPO ratio is clipped from below at ``1 - clip_ratio_low``.
        clip_ratio_high: The PPO ratio is clipped from above at ``1 + clip_ratio_high``.
        clip_ratio_c: Dual clip, above 1: cap of the PPO ratio where the advantage is negative; ``None`` for no cap.
        loss_agg_mode: ``"token-mean"``, ``"seq-mean-token-sum"`` or ``"seq-mean-token-mean"``.
        optim: The optimizer's settings.
    """

    ppo_epochs: int = 1
    ppo_mini_batch_size: int = 32
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    clip_ratio_c: float | None = 3.0
    loss_agg_mode: str = "token-mean"
    optim: OptimSchema = field(default_factory=OptimSchema)


@dataclass
class RolloutSchema:
    """``actor_rollout_ref.rollout``, where the responses come from.

    Args:
        name: Name of the engine's setting.
        n: Responses to one prompt.
        temperature: The sampler draws from ``softmax(logits / temperature)``.
        calculate_log_probs: The engine returns the log-prob of each sampled token.
        engine: ``_target_`` and arguments of a class with ``generate`` and ``sync_weights``.
    """

    name: str = MISSING
    n: int = 8
    temperature: float = 1.0
    calculate_log_probs: bool = True
    engine: dict[str, Any] = MISSING


def conf_directory() -> Path:
    """Directory of the shipped YAML files.

    Returns:
        ``conf`` inside the package where it was installed from a wheel, ``conf`` beside it in a source tree.

    Example:
        >>> (conf_directory() / "algorithm" / "token_truncate.yaml").is_file()
        True
    """
    package = Path(__file__).resolve().parent
    return next(conf for conf in (package / "conf", package.parent / "conf") if conf.is_dir())


def register() -> None:
    """Put the schemas that the YAML files extend into Hydra's ``ConfigStore``.

    The search-path plugin calls this; calling it again changes nothing. The ``algorithm`` schema is open, since the
    keys of the user's trainer live in the same block; a typo in it is found by ``RolloutISConfig.from_mapping``.

    Example:
        >>> register()
        >>> ConfigStore.instance().load("algorithm/rollout_is_schema.yaml").node.rollout_is_veto_threshold
        0.0001
    """
    store = ConfigStore.instance()
    algorithm = OmegaConf.structured(AlgorithmSchema, flags={"struct": False})
    store.store(group="algorithm", name="rollout_is_schema", node=algorithm, provider=PROVIDER)
    trainer = {"data": DataSchema, "actor_rollout_ref": {"actor": ActorSchema, "rollout": RolloutSchema}}
    store.store(name="rollout_is_train_schema", node=trainer, provider=PROVIDER)
