"""A TensorBoard on two runs of a real Trainer, whose rollout engines are like one in int4 and like a perfect one.

``BROWSER_LOGDIR`` names a folder to show in their place, and ``BROWSER_PICTURES`` one for the pictures.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lightning_rollout_is import RolloutISCallback, RolloutISHealth
from tests.browser.chromium import PATIENCE, Page, start
from tests.trainer.policy import ALGORITHM, Policy, rollout_batch
from tests.trainer.runs import fit

RUNS = {"fp32": 1e-6, "int4": 0.06}
"""By name, the standard deviation of the log ratio: K3 is half its square, and healthy up to 5e-4."""
STEPS = 20


def batch(seed, deviation):
    made = rollout_batch(seed, rows=32, length=32)
    noise = torch.randn(32, 32, generator=torch.Generator().manual_seed(seed))
    return {**made, "rollout_log_prob": made["old_log_prob"] + deviation * noise}


@pytest.fixture(scope="session")
def logdir(tmp_path_factory):
    if os.environ.get("BROWSER_LOGDIR"):
        return Path(os.environ["BROWSER_LOGDIR"])
    folder = tmp_path_factory.mktemp("runs")
    algorithm = {**ALGORITHM, "rollout_is_mode": "truncate"}
    for name, deviation in RUNS.items():
        callbacks = [RolloutISCallback(histogram_every_n_steps=5), RolloutISHealth()]
        fit(Policy(algorithm), [batch(seed, deviation) for seed in range(STEPS)], folder / name, callbacks=callbacks)
    return folder


@pytest.fixture(scope="session")
def browser():
    driver = start()
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def tensorboard(browser, logdir, tmp_path_factory):
    """Its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    said = tmp_path_factory.mktemp("tensorboard") / "said"
    with said.open("w") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as server:
        try:
            yield address_in(said, server)
        finally:
            server.terminate()


def address_in(said, server):
    """Where TensorBoard says that it listens: it chooses a free port itself."""
    end = time.monotonic() + PATIENCE
    while not (address := re.search(r"http://127\.0\.0\.1:\d+", said.read_text())):
        assert server.poll() is None, f"TensorBoard has ended: {said.read_text()}"
        assert time.monotonic() < end, f"TensorBoard did not start within {PATIENCE} s: {said.read_text()}"
        time.sleep(0.1)
    return address[0]


@pytest.fixture
def page(browser, tmp_path):
    folder = Path(os.environ.get("BROWSER_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return Page(browser, lambda name: folder / f"{name}.png")
