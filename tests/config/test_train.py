"""``conf/train.yaml``: every option of every group composes, and names things that exist and take these arguments."""

import inspect
from collections.abc import Iterator
from typing import Any

import lightning
import pytest
from hydra.errors import ConfigCompositionException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf

from lightning_rollout_is import RolloutISConfig
from lightning_rollout_is.hydra_store import conf_directory

GROUPS = sorted(folder.name for folder in conf_directory().iterdir() if folder.is_dir())
OPTIONS = [
    f"{group}={file.stem}"
    for group in GROUPS
    for file in sorted((conf_directory() / group).glob("*.yaml"))
    if not file.stem.startswith("_")
]


def targets(node: Any) -> Iterator[tuple[str, set[str]]]:
    """Every ``_target_`` in a resolved configuration, with the names of its arguments."""
    if isinstance(node, list):
        for child in node:
            yield from targets(child)
    if isinstance(node, dict):
        if "_target_" in node:
            yield node["_target_"], {key for key in node if not (key.startswith("_") and key.endswith("_"))}
        for child in node.values():
            yield from targets(child)


def resolved(config: DictConfig) -> dict[str, Any]:
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def test_the_groups_are_here():
    expected = {"algorithm", "callbacks", "experiment", "logger", "policy", "rollout", "task", "trainer"}
    assert expected <= set(GROUPS)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_and_is_valid(compose_train, option):
    config = compose_train(option)
    RolloutISConfig.from_mapping(config)
    for target, arguments in targets(resolved(config)):
        parameters = inspect.signature(get_object(target)).parameters.values()
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            assert arguments <= {parameter.name for parameter in parameters}, target


@pytest.mark.parametrize("trainer", ["cpu", "ddp_cpu"])
def test_the_trainers_of_a_cpu_can_be_made(compose_train, trainer):
    made = instantiate(compose_train(f"trainer={trainer}").trainer, logger=False, enable_progress_bar=False)
    assert isinstance(made, lightning.Trainer)
    assert made.log_every_n_steps == 1
    assert made.world_size == (2 if trainer == "ddp_cpu" else 1)


def test_loggers_combine(compose_train, tmp_path):
    loggers = instantiate(compose_train("logger=[tensorboard,csv]").logger)
    assert [type(logger).__name__ for logger in loggers.values()] == ["TensorBoardLogger", "CSVLogger"]
    assert all(str(tmp_path) in logger.log_dir for logger in loggers.values())


@pytest.mark.parametrize("group", ["logger", "callbacks"])
def test_none_is_an_empty_mapping(compose_train, group):
    assert compose_train(f"{group}=none")[group] == {}


def test_the_default_callback_can_be_made(compose_train):
    (callback,) = instantiate(compose_train().callbacks).values()
    assert type(callback).__name__ == "RolloutISCallback"


def test_dapo_clips_higher_samples_dynamically_and_averages_over_tokens(compose_train):
    config = compose_train("experiment=dapo")
    actor = config.actor_rollout_ref.actor
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.28, 10.0)
    assert actor.loss_agg_mode == "token-mean"
    assert config.algorithm.filter_groups.enable is True
    assert RolloutISConfig.from_mapping(config).applied


def test_the_command_line_wins_over_an_experiment(compose_train):
    config = compose_train("experiment=dapo", "algorithm=sequence_mask", "actor_rollout_ref.actor.clip_ratio_high=0.3")
    assert config.algorithm.rollout_is_level == "sequence"
    assert config.actor_rollout_ref.actor.clip_ratio_high == 0.3


@pytest.mark.parametrize(
    "override",
    [
        "algorithms.rollout_is=true",
        "data.train_batchsize=4",
        "actor_rollout_ref.actor.clip_ratio=0.2",
        "actor_rollout_ref.actor.optim.learning_rate=1",
        "actor_rollout_ref.actor.ppo_epochs=many",
        "actor_rollout_ref.rollout.calculate_logprobs=true",
        "actor_rollout_ref.rollout.calculate_log_probs=maybe",
    ],
)
def test_a_typo_outside_the_open_block_is_refused_while_composing(compose_train, override):
    with pytest.raises(ConfigCompositionException, match=override.partition("=")[0]):
        compose_train(override)


@pytest.mark.parametrize(
    ("override", "key", "value", "allowed"),
    [
        ("rollout_is_level=tokens", "rollout_is_level", "'tokens'", "token, sequence, geometric"),
        ("rollout_is_mode=clip", "rollout_is_mode", "'clip'", "truncate, mask"),
        ("rollout_is_threshold=-1", "rollout_is_threshold", "-1.0", "a finite number above 0, or null"),
        ("rollout_is_veto_threshold=0", "rollout_is_veto_threshold", "0.0", "a finite number above 0, or null"),
    ],
)
def test_a_refused_value_is_one_line_with_key_value_and_choices(compose_train, override, key, value, allowed):
    with pytest.raises(ValueError, match=key) as error:
        RolloutISConfig.from_mapping(compose_train(f"algorithm.{override}"))
    assert str(error.value) == f"{key} = {value} is not allowed; allowed: {allowed}"


def test_a_correction_without_the_rollouts_log_probs_is_refused(compose_train):
    config = compose_train("actor_rollout_ref.rollout.calculate_log_probs=false")
    with pytest.raises(ValueError, match=r"actor_rollout_ref\.rollout\.calculate_log_probs = False"):
        RolloutISConfig.from_mapping(config)
    config = compose_train("actor_rollout_ref.rollout.calculate_log_probs=false", "algorithm=off")
    assert not RolloutISConfig.from_mapping(config).enabled
