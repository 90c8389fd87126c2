"""From a Hydra configuration, with the keys at verl's places, to a module that can be fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hydra.utils import instantiate

from lightning_rollout_is.config import RolloutISConfig
from lightning_rollout_is.recipes.grpo import GRPOModule
from lightning_rollout_is.recipes.sampling import GroupSampler

if TYPE_CHECKING:
    from omegaconf import DictConfig

GRPO_ALONE = {"adv_estimator": "grpo", "use_kl_in_reward": False, "use_pf_ppo": False}
"""Keys of verl's ``algorithm`` block that choose another algorithm, and the one value that is implemented here."""


def grpo_from_config(cfg: DictConfig) -> GRPOModule:
    """Build the policy, the engine, the task and the module.

    Args:
        cfg: ``policy``, ``task``, ``data``, ``actor_rollout_ref.{rollout,actor}``, ``algorithm`` and ``seed``, as
            ``conf/train.yaml`` composes them; and ``tokenizer``, for a policy whose tokens are not bytes.

    Raises:
        ValueError: A setting is not allowed; the message names the key.
    """
    rollout, algorithm = cfg.actor_rollout_ref.rollout, cfg.algorithm
    config = RolloutISConfig.from_mapping(cfg)
    _require_grpo(algorithm)
    sampler = GroupSampler(
        instantiate(rollout.engine),
        instantiate(cfg.task),
        n=rollout.n,
        temperature=rollout.temperature,
        filter_groups=algorithm.filter_groups,
        tokenizer=instantiate(cfg.tokenizer) if "tokenizer" in cfg else None,
        **cfg.data,
    )
    actor: dict[Any, Any] = dict(cfg.actor_rollout_ref.actor)
    return GRPOModule(
        instantiate(cfg.policy),
        sampler,
        config,
        norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
        seed=cfg.seed,
        **actor,
    )


def _require_grpo(algorithm: DictConfig) -> None:
    for key, value in GRPO_ALONE.items():
        if algorithm.get(key, value) != value:
            raise ValueError(f"algorithm.{key} = {algorithm[key]!r} is not implemented here; allowed: {value!r}")
