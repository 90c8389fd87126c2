"""Composing the shipped configuration as Hydra applications do."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from lightning_rollout_is.hydra_store import conf_directory

Compose = Callable[..., DictConfig]


@pytest.fixture
def compose_train(tmp_path: Path) -> Iterator[Compose]:
    """``compose_train(*overrides)``: the configuration of ``examples/train.py``, every interpolation resolvable."""

    def composed(*overrides: str) -> DictConfig:
        with initialize_config_dir(str(conf_directory()), version_base="1.3"):
            runtime = f"hydra.runtime.output_dir={tmp_path}"
            config = compose("train", [*overrides, runtime], return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        with open_dict(config):
            del config.hydra
        return config

    yield composed
    HydraConfig.instance().cfg = None


@pytest.fixture
def compose_app(tmp_path: Path) -> Compose:
    """``compose_app({"main": text, ...}, *overrides)``: an application of the user, made of these YAML files."""

    def composed(files: dict[str, str], *overrides: str) -> DictConfig:
        for name, text in files.items():
            file = tmp_path / f"{name}.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        with initialize_config_dir(str(tmp_path), version_base="1.3"):
            return compose("main", list(overrides))

    return composed
