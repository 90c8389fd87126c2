"""The HTTP engine with a real vLLM server, started by the very command that the engine says."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from lightning_rollout_is.engines import VLLMServerEngine
from lightning_rollout_is.engines.post_json import RequestError
from lightning_rollout_is.engines.vllm import ENVIRONMENT
from tests.engines.installed import needs_vllm
from tests.engines.tiny import PROMPTS, engine_log_probs, tiny_policy, trainer_log_probs

pytestmark = [needs_vllm, pytest.mark.filterwarnings("default")]
SOME = PROMPTS[:24]
STARTS_WITHIN = 200


def small_policy(seed):
    return tiny_policy(seed=seed, num_attention_heads=2, max_position_embeddings=64)


def difference(policy, completions, temperature=1.0):
    return (trainer_log_probs(policy, SOME, completions, temperature) - engine_log_probs(completions)).abs()


@pytest.fixture
def engine(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    engine = VLLMServerEngine(url, str(tmp_path / "policy"), attempts=1)
    with pytest.raises(RequestError, match="Start one with: ") as dead:
        engine.sync_weights(small_policy(0))
    *settings, _, _, module = shlex.split(str(dead.value).partition("Start one with: ")[2].partition(" --model")[0])
    arguments = shlex.split("--model" + str(dead.value).partition(" --model")[2])
    environment = {**os.environ, **ENVIRONMENT, **dict(setting.split("=") for setting in settings)}
    small = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "64"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, *small],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_for(url, server, tmp_path / "log")
        yield engine
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def answers(url):
    try:
        urllib.request.urlopen(f"{url}/health", timeout=5).close()
    except OSError:
        return False
    return True


def wait_for(url, server, log):
    end = time.monotonic() + STARTS_WITHIN
    while not answers(url):
        if time.monotonic() > end or server.poll() is not None:
            pytest.fail(f"vLLM did not start: {log.read_text()[-3000:]}")
        time.sleep(1)


def test_a_server_started_as_the_engine_says_follows_the_trainer(engine):
    before, after = small_policy(0), small_policy(1)
    engine.sync_weights(before)
    for temperature in (1.0, 0.6):
        assert difference(before, engine.generate(SOME, 10, temperature), temperature).max() < 1e-3
    copies = engine.generate([PROMPTS[0]] * 32, 8)
    assert len({tuple(completion.token_ids) for completion in copies}) > 24
    assert difference(after, engine.generate(SOME, 10)).mean() > 0.2
    engine.sync_weights(after)
    completions = engine.generate(SOME, 10)
    assert difference(after, completions).max() < 1e-3
    assert difference(before, completions).mean() > 0.2
