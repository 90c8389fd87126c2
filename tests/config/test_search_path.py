"""The search-path plugin, in processes of their own: what it gives an application, and what it leaves alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys
import hydra
from omegaconf import OmegaConf

@hydra.main(version_base="1.3", config_path="conf", config_name="main")
def main(config):
    print(OmegaConf.to_yaml(config))
    print("LOADED", sorted({"torch", "lightning", "torchmetrics", "transformers"} & set(sys.modules)))

main()
"""


@pytest.fixture
def run_app(tmp_path):
    """``run_app({"main": text, ...}, *arguments)``: output of a Hydra script that never imports this package."""

    def run(files: dict[str, str], *arguments: str) -> str:
        (tmp_path / "app.py").write_text(SCRIPT)
        for name, text in files.items():
            file = tmp_path / "conf" / f"{name}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        command = [sys.executable, "-W", "error", "app.py", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        return result.stdout

    return run


def test_an_application_finds_the_presets_and_their_schema(run_app):
    output = run_app({"main": "defaults: [algorithm: token_truncate, _self_]\nlr: 0.1\n"}, "algorithm=geometric_mask")
    assert "rollout_is_threshold: 1.0002" in output
    assert "rollout_is_level: geometric" in output
    assert "LOADED []" in output


def test_an_unrelated_application_is_left_alone(run_app):
    files = {"main": "defaults: [optimizer: sgd, _self_]\nseed: 3\n", "optimizer/sgd": "lr: 0.1\n"}
    assert run_app(files) == "optimizer:\n  lr: 0.1\nseed: 3\n\nLOADED []\n"


def test_an_applications_own_group_keeps_precedence(run_app):
    files = {"main": "defaults: [algorithm: token_truncate]\n", "algorithm/token_truncate": "mine: true\n"}
    assert run_app(files) == "algorithm:\n  mine: true\n\nLOADED []\n"


def test_the_shipped_directory_comes_after_the_applications_own(run_app, tmp_path):
    output = run_app({"main": "seed: 3\n"}, "--info", "searchpath")
    providers = [line.split("|")[1].strip() for line in output.splitlines() if line.startswith("|")]
    assert providers == ["Provider", "hydra", "main", "lightning_rollout_is", "schema"]
