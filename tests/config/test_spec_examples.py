"""The specification's four configuration examples, pasted in wherever a user would paste them."""

import dataclasses
import shutil

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lightning_rollout_is import RolloutISConfig
from lightning_rollout_is.hydra_store import conf_directory
from tests.config.spec import BLOCKS

blocks = pytest.mark.parametrize(("block", "preset", "meaning"), BLOCKS, ids=[preset for _, preset, _ in BLOCKS])


def assert_means(config, meaning):
    assert dataclasses.astuple(RolloutISConfig.from_mapping(config)) == meaning


@blocks
def test_as_a_plain_file(block, preset, meaning):
    assert_means(OmegaConf.create(block), meaning)


@blocks
def test_as_a_whole_application_without_a_defaults_list(compose_app, block, preset, meaning):
    assert_means(compose_app({"main": block}), meaning)


@blocks
def test_in_an_application_that_uses_a_preset(compose_app, block, preset, meaning):
    assert_means(compose_app({"main": f"defaults: [algorithm: 'off', _self_]\n{block}"}), meaning)


@blocks
def test_over_the_main_job_in_the_users_own_primary_config(compose_app, block, preset, meaning):
    config = compose_app({"main": f"defaults: [train, _self_]\n{block}"})
    assert_means(config, meaning)
    assert config.actor_rollout_ref.rollout.calculate_log_probs is True


@blocks
def test_over_the_main_job_as_an_experiment_in_the_users_directory(compose_app, block, preset, meaning):
    files = {"main": "defaults: [train, _self_]\n", "experiment/mine": f"# @package _global_\n{block}"}
    assert_means(compose_app(files, "experiment=mine"), meaning)


@blocks
def test_pasted_at_the_end_of_the_shipped_file(tmp_path, block, preset, meaning):
    conf = tmp_path / "conf"
    shutil.copytree(conf_directory(), conf)
    train = conf / "train.yaml"
    lines = train.read_text().splitlines(keepends=True)
    start = lines.index("algorithm:\n")
    end = next(i for i in range(start + 1, len(lines)) if lines[i].strip() and not lines[i].startswith((" ", "#")))
    train.write_text("".join([*lines[:start], block, *lines[end:]]))
    with initialize_config_dir(str(conf), version_base="1.3"):
        assert_means(compose("train"), meaning)


@blocks
def test_it_means_the_preset(compose_train, block, preset, meaning):
    assert_means(compose_train(f"algorithm={preset}"), meaning)
