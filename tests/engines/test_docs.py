"""The engine that the documentation writes out is an engine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from lightning_rollout_is.engines import RolloutEngine
from tests.engines.tiny import END, PROMPTS, engine_log_probs, tiny_policy, trainer_log_probs

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "engines.md").read_text()


def block(language):
    return re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL).group(1)


def test_the_engine_of_the_documentation_agrees_with_the_trainer():
    names = {}
    exec(block("python"), names)
    engine, policy = names["MyEngine"](), tiny_policy()
    assert isinstance(engine, RolloutEngine)
    engine.sync_weights(policy)
    completions = engine.generate(PROMPTS[:12], 8, 0.7)
    difference = trainer_log_probs(policy, PROMPTS[:12], completions, 0.7) - engine_log_probs(completions)
    torch.testing.assert_close(difference, torch.zeros_like(difference), rtol=0, atol=1e-4)
    assert all(END not in completion.token_ids[:-1] for completion in completions)
    assert len({len(completion.token_ids) for completion in completions}) > 1


def test_its_configuration_runs_it(tmp_path):
    (tmp_path / "my_conf" / "rollout").mkdir(parents=True)
    (tmp_path / "my_conf" / "rollout" / "mine.yaml").write_text(block("yaml"))
    (tmp_path / "my_package.py").write_text(block("python"))
    command = [sys.executable, str(ROOT / "examples" / "train.py"), "--config-dir", "my_conf", "rollout=mine"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    small = ["experiment=fast", "trainer.max_steps=1", "hydra.run.dir=run", "policy=random_llama", "policy.layers=1"]
    finished = subprocess.run(
        [*command, *small], cwd=tmp_path, capture_output=True, text=True, timeout=240, env=environment
    )
    assert finished.returncode == 0, finished.stderr
    assert "effective sample size" in finished.stdout


def test_every_shipped_rollout_is_in_the_table():
    table = TEXT.split("## How large")[0]
    for file in (ROOT / "conf" / "rollout").glob("[!_]*.yaml"):
        assert f"`{file.stem}`" in table, file.stem
