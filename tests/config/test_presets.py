"""``conf/algorithm``: the values of each preset, the schema that it extends, and the block around it."""

import dataclasses
import pickle
from typing import get_type_hints

import pytest
import yaml
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from lightning_rollout_is import RolloutISConfig
from lightning_rollout_is.hydra_store import AlgorithmSchema, conf_directory
from tests.config.spec import BLOCKS

PRESETS = {preset: values for _, preset, values in BLOCKS} | {
    "off": (None, False, None, "token", "truncate", 1e-4),
    "token_mask": (2.0, True, 0.5, "token", "mask", 1e-4),
    "sequence_truncate": (5.0, True, None, "sequence", "truncate", 1e-4),
    "sequence_mask": (5.0, True, None, "sequence", "mask", 1e-4),
}
FILES = sorted((conf_directory() / "algorithm").glob("*.yaml"))


def app(preset: str, block: str = "{}") -> dict[str, str]:
    return {"main": f'defaults: [algorithm: "{preset}", _self_]\nalgorithm: {block}\n'}


def test_every_preset_is_here():
    assert {file.stem for file in FILES} == set(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_means_what_the_specification_says_without_a_remark(compose_app, preset):
    config = RolloutISConfig.from_mapping(compose_app(app(preset)).algorithm)
    assert dataclasses.astuple(config) == PRESETS[preset]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_plain_yaml_loader_reads_the_same_values(compose_app, file):
    """A plain loader reads ``1e-4`` as text; ``1.0e-4`` is a number to every loader."""
    plain = yaml.safe_load(file.read_text())
    assert plain.pop("defaults") == ["rollout_is_schema", "_self_"]
    composed = compose_app(app(file.stem)).algorithm
    assert {key: composed[key] for key in plain} == plain
    assert {key: type(composed[key]) for key in plain} == {key: type(value) for key, value in plain.items()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_preset_opens_with_when_to_use_it(file):
    assert file.read_text().startswith("# ")


def test_the_schema_is_the_configuration_object():
    schema, config = dataclasses.fields(AlgorithmSchema), dataclasses.fields(RolloutISConfig)
    assert [(key.name, key.default) for key in schema] == [(key.name, key.default) for key in config]
    assert get_type_hints(AlgorithmSchema) == get_type_hints(RolloutISConfig)


@pytest.mark.parametrize("order", ["[algorithm: token_mask, _self_]", "[_self_, algorithm: token_mask]"])
def test_the_keys_of_the_users_trainer_live_in_the_same_block(compose_app, order):
    block = "{adv_estimator: grpo, gamma: 0.9, filter_groups: {enable: true, metric: acc}}"
    config = compose_app({"main": f"defaults: {order}\nalgorithm: {block}\n"}, "algorithm.filter_groups.enable=false")
    assert config.algorithm.filter_groups == {"enable": False, "metric": "acc"}
    assert config.algorithm.gamma == 0.9
    assert dataclasses.astuple(RolloutISConfig.from_mapping(config)) == PRESETS["token_mask"]


@pytest.mark.parametrize("where", ["file", "command line"])
def test_a_typo_in_the_open_block_gets_a_suggestion(compose_app, where):
    block, overrides = (
        ("{rollout_is_treshold: 3.0}", []) if where == "file" else ("{}", ["algorithm.rollout_is_treshold=3"])
    )
    config = compose_app(app("token_mask", block), *overrides)
    with pytest.raises(ValueError, match="unknown key 'rollout_is_treshold', did you mean 'rollout_is_threshold'"):
        RolloutISConfig.from_mapping(config)


@pytest.mark.parametrize("override", ["rollout_is_threshold=two", "rollout_is_threshold=true", "rollout_is=2.5"])
def test_a_value_of_the_wrong_type_is_refused_while_composing(compose_app, override):
    with pytest.raises(ConfigCompositionException, match=f"algorithm.{override}"):
        compose_app(app("token_mask"), f"algorithm.{override}")


def test_known_keys_are_typed(compose_app):
    config = compose_app(app("off", '{rollout_is_threshold: "2", rollout_is: "true"}')).algorithm
    assert (config.rollout_is_threshold, type(config.rollout_is_threshold)) == (2.0, float)
    assert config.rollout_is is True


def test_a_composed_configuration_pickles(compose_app):
    config = compose_app(app("asymmetric"))
    assert pickle.loads(pickle.dumps(config)) == config
    assert OmegaConf.get_type(config.algorithm) is AlgorithmSchema
