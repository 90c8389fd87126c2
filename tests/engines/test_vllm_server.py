"""The HTTP engine against a real server on loopback: alignment, weights, and every way in which a request can fail."""

import json
import socket
import time

import pytest
import torch

from lightning_rollout_is.engines import RolloutEngine, VLLMServerEngine
from lightning_rollout_is.engines.post_json import RequestError, Retries, post_json
from tests.engines.completions_server import completions_server
from tests.engines.tiny import END, PROMPTS, engine_log_probs, tiny_policy, trainer_log_probs

SOME = PROMPTS[:12]
COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


@pytest.fixture
def server():
    with completions_server() as server:
        yield server


@pytest.fixture
def engine(server, policy, tmp_path):
    engine = VLLMServerEngine(server.url, str(tmp_path / "policy"), pause=0.0, timeout=60.0)
    engine.sync_weights(policy)
    server.bodies.clear()
    return engine


def difference(policy, completions, temperature=1.0):
    return (trainer_log_probs(policy, SOME, completions, temperature) - engine_log_probs(completions)).abs()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_belong_to_the_tokens_and_prompts_that_they_stand_beside(engine, policy, temperature):
    assert isinstance(engine, RolloutEngine)
    completions = engine.generate(SOME, 8, temperature)
    assert difference(policy, completions, temperature).max() < 1e-4
    assert {len(completion.token_ids) for completion in completions} > {8}
    assert all(END not in completion.token_ids[:-1] for completion in completions)


def test_a_request_asks_for_token_ids_and_for_the_log_probs_of_an_unfiltered_draw(engine, server):
    engine.generate(SOME, 8, 0.7)
    assert len(server.bodies) == len(SOME)
    assert len({body.pop("seed") for body in server.bodies}) == len(SOME)
    assert sorted(body.pop("prompt") for body in server.bodies) == sorted(SOME)
    asked = {"max_tokens": 8, "temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "logprobs": 0}
    rest = {"model": str(engine.folder), "ignore_eos": True, "stop_token_ids": [END]}
    rest |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
    assert server.bodies == [{**asked, **rest}] * len(SOME)


def test_the_seed_decides_and_nothing_repeats(server, policy, tmp_path):
    def responses(seed):
        engine = VLLMServerEngine(server.url, str(tmp_path), seed=seed)
        engine.sync_weights(policy)
        return [engine.generate([SOME[0]] * 16, 8) for _ in range(2)]

    first = responses(1)
    assert first == responses(1) != responses(2)
    assert first[0] != first[1]
    assert len({tuple(completion.token_ids) for completion in first[0]}) > 12


def test_after_a_refresh_the_log_probs_follow_the_trainer_and_before_it_they_do_not(engine, server, policy):
    moved = tiny_policy(seed=1)
    assert difference(moved, engine.generate(SOME, 8)).mean() > 0.2
    server.paths.clear()
    engine.sync_weights(moved)
    assert server.paths == ["/collective_rpc", "/reset_prefix_cache"]
    completions = engine.generate(SOME, 8)
    assert difference(moved, completions).max() < 1e-4
    assert difference(policy, completions).mean() > 0.2


@pytest.mark.parametrize(
    "fault",
    [
        503,
        429,
        "hang up",
        lambda answer: b"no JSON",
        lambda answer: json.dumps(answer).encode()[:-9],
    ],
    ids=["unavailable", "too many", "hang up", "no JSON", "cut off"],
)
def test_a_passing_fault_costs_no_response_and_changes_none(engine, server, policy, fault):
    again = VLLMServerEngine(server.url, str(engine.folder), pause=0.0)
    again.sync_weights(policy)
    expected = again.generate(SOME, 8)
    server.bodies.clear()
    server.faults[COMPLETIONS] = [fault] * 3
    assert engine.generate(SOME, 8) == expected
    assert len(server.bodies) == len(SOME) + 3


def test_a_server_that_hangs_is_asked_again_after_the_timeout(server, policy, tmp_path):
    engine = VLLMServerEngine(server.url, str(tmp_path), pause=0.0, timeout=1.0)
    engine.sync_weights(policy)
    server.faults[COMPLETIONS] = ["hang"]
    assert difference(policy, engine.generate(SOME, 2)).max() < 1e-4


def test_the_bound_is_kept_and_the_failure_says_what_was_asked(server, policy, tmp_path):
    engine = VLLMServerEngine(server.url, str(tmp_path), attempts=3, pause=0.0, parallel=1)
    engine.sync_weights(policy)
    server.bodies.clear()
    server.faults[COMPLETIONS] = [503] * 99
    with pytest.raises(RequestError, match=r"gave up after 3 attempts: POST .*/v1/completions .*503.*as asked for"):
        engine.generate(SOME, 8)
    # The other prompts are not sent once the step is lost, but for one that may be under way.
    assert len(server.bodies) in (3, 6)


def test_a_request_that_is_wrong_is_not_repeated(engine, server):
    server.faults[COMPLETIONS] = [400]
    server.bodies.clear()
    with pytest.raises(RequestError, match=r"status 400.*as asked for"):
        engine.generate(SOME[:1], 8)
    assert len(server.bodies) == 1


def test_a_dead_server_is_named_with_the_command_that_starts_one(policy, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = VLLMServerEngine(f"http://127.0.0.1:{port}", str(tmp_path / "policy"), attempts=2, pause=0.0)
    message = rf"(?s)gave up after 2 attempts.*refused.*api_server --model {tmp_path}/policy .*--port {port} "
    with pytest.raises(RequestError, match=message):
        engine.sync_weights(policy)
    assert (tmp_path / "policy" / "config.json").is_file()
    assert (tmp_path / "policy" / "model.safetensors").is_file()


def test_a_server_without_development_mode_is_named(server, policy, tmp_path):
    server.faults["/collective_rpc"] = [404]
    engine = VLLMServerEngine(server.url, str(tmp_path))
    with pytest.raises(RequestError, match=r"404.*Without development mode .*VLLM_SERVER_DEV_MODE=1"):
        engine.sync_weights(policy)


@pytest.mark.parametrize(
    ("spoil", "counts"),
    [
        (lambda choice: choice.pop("token_ids"), "0 token ids and [1-4] log-probs"),
        (lambda choice: choice.pop("logprobs"), "[1-4] token ids and 0 log-probs"),
        (
            lambda choice: choice["logprobs"]["token_logprobs"].pop(),
            "[1-4] token ids and [0-3] log-probs; it must give as many of both",
        ),
    ],
)
def test_an_answer_without_a_log_prob_for_each_token_is_refused(engine, server, spoil, counts):
    def spoiled(answer):
        spoil(answer["choices"][0])
        return json.dumps(answer).encode()

    server.faults[COMPLETIONS] = [spoiled]
    with pytest.raises(RequestError, match=counts):
        engine.generate(SOME[:1], 4)


def test_a_log_prob_that_the_server_left_out_is_missing_and_not_zero(engine, server):
    def without(answer):
        answer["choices"][0]["logprobs"]["token_logprobs"][0] = None
        return json.dumps(answer).encode()

    server.faults[COMPLETIONS] = [without]
    assert torch.tensor(engine.generate(SOME[:1], 4)[0].log_probs).isnan().tolist()[0] is True


def test_an_engine_without_weights_says_so(tmp_path):
    with pytest.raises(RuntimeError, match="sync_weights"):
        VLLMServerEngine(folder=str(tmp_path)).generate(SOME, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "127.0.0.1:8000"}, r"url = '127\.0\.0\.1:8000' .*http://"),
        ({"parallel": 0}, "parallel = 0 .*from 1"),
        ({"attempts": 0}, "attempts = 0 .*from 1"),
        ({"timeout": 0.0}, r"timeout = 0\.0 .*above 0"),
        ({"min_p": 2.0}, r"min_p = 2\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        VLLMServerEngine(**settings)


def test_a_filter_is_sent_and_announced(server, policy, tmp_path):
    with pytest.warns(UserWarning, match=r"top_p = 0\.9: .*no importance weight"):
        engine = VLLMServerEngine(server.url, str(tmp_path), top_p=0.9)
    engine.sync_weights(policy)
    engine.generate(SOME[:1], 2)
    assert server.bodies[-1]["top_p"] == 0.9


def test_pauses_double(server, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    server.faults["/x"] = [500] * 3
    assert post_json(server.url + "/x", {}, Retries(attempts=4, pause=0.5)) == {"success": True}
    assert pauses == [0.5, 1.0, 2.0]
