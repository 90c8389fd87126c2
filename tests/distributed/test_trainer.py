"""``Trainer(devices=2)``, started as a user starts it."""

import subprocess
import sys

import pytest

from lightning_rollout_is import RolloutISConfig
from tests.distributed.ddp_run import ROLLOUTS
from tests.trainer.policy import ALGORITHM
from tests.trainer.runs import curves, expected


def test_points_cover_all_micro_batches_of_all_ranks(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "tests.distributed.ddp_run", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    written = curves(tmp_path)
    for step in range(2):
        window = [batch for share in ROLLOUTS for batch in share[2 * step : 2 * step + 2]]
        for name, value in expected(window, RolloutISConfig.from_mapping(ALGORITHM)).items():
            assert written[f"mismatch/{name}"][step] == (step, pytest.approx(value, rel=2e-6, abs=1e-6)), name
    assert len(written["mismatch/mismatch_kl"]) == 2
