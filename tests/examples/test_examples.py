"""Each example runs as a user runs it: by its path, from any folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.trainer.runs import curves

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, folder, *overrides, code=0):
    finished = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *overrides],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160"},
    )
    assert finished.returncode == code, finished.stderr
    return finished


def test_weights(tmp_path):
    output = run("01_weights.py", tmp_path).stdout
    assert len(re.findall(r"threshold", output)) == 6
    assert output.endswith("tensor([0.9900, 1.0305, 1.0000, 0.8958, 1.0513, 0.9802, 0.0111])\n")


def test_metrics(tmp_path):
    lines = run("02_metrics.py", tmp_path).stdout.splitlines()
    values = dict(line.split() for line in lines[:-1])
    assert len(values) == 30
    assert f"'ess': {values['mismatch/rollout_is_eff_sample_size']}" in lines[-1]


def test_lightning_module(tmp_path):
    output = run("03_lightning_module.py", tmp_path).stdout
    written = curves(next((tmp_path / "runs" / "bandit").iterdir()))
    assert written["reward"][-1][1] > 0.9 > written["reward"][0][1]
    steps = [step for step, _ in written["mismatch/mismatch_k3_kl"]]
    assert steps == [step for step, _ in written["reward"]] == list(range(100))
    k3 = [value for _, value in written["mismatch/mismatch_k3_kl"]]
    assert max(k3[::10]) < 1e-6 < max(k3)  # refreshed at every tenth step, stale between
    assert "tensorboard --logdir" in output
