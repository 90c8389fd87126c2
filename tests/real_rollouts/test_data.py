"""The data is what it is said to be: as recorded, complete, sampled independently, and with the mismatch published."""

import pytest

from tests.real_rollouts.rollouts import ENGINES, PROMPTS, read_batch, read_responses
from tests.reference import oracle
from tests.reference.batches import Batch

END = 2  # <|im_end|>
LENGTH = 48

# Tokens; KL; K3; largest |log ratio|; effective sample size of tokens; share of sequences outside [1/2, 2]. To the
# digits that were published with the data.
PUBLISHED = {
    "llama_cpp_f16": "1220 0.0001 0.00001 0.02 1.000 0.00",
    "vllm_fp32": "1267 0.0000 0.00000 0.00005 1.000 0.00",  # 0.0005 was published for the fourth, as a bound
    "vllm_bf16": "1326 0.0004 0.0016 0.32 0.997 0.03",
    "vllm_bf16_both": "1326 0.0024 0.0024 0.52 0.995 0.16",
    "llama_cpp_q4_1": "1254 0.0044 0.0035 0.34 0.993 0.22",
    "llama_cpp_q8_0": "1214 0.0083 0.0055 1.04 0.990 0.38",
    "llama_cpp_q4_0": "1270 0.41 0.44 7.09 0.795 1.00",
}


def test_every_engine_is_here() -> None:
    assert set(ENGINES) == {*PUBLISHED, "llama_cpp_q4_1_file"}


@pytest.mark.parametrize("engine", ENGINES)
def test_four_responses_to_each_of_eight_prompts(engine: str) -> None:
    prompts = [response["prompt"] for response in read_responses(engine)]
    assert sorted(prompts) == [prompt for prompt in range(8) for _ in range(4)]
    assert len(PROMPTS) == 8


@pytest.mark.parametrize("engine", ENGINES)
def test_each_token_has_both_log_probs(engine: str) -> None:
    for response in read_responses(engine):
        ids = response["response_ids"]
        log_probs = response["rollout_logprobs"], response["training_logprobs"]
        assert [len(values) for values in log_probs] == [len(ids)] * 2
        assert all(-40.0 < value <= 0.0 for values in log_probs for value in values)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_response_ends_with_its_end_token_or_at_the_limit(engine: str) -> None:
    for response in read_responses(engine):
        ids = response["response_ids"]
        assert END not in ids[:-1]
        assert ids[-1] == END or len(ids) == LENGTH


@pytest.mark.parametrize("engine", ENGINES)
def test_no_draw_is_repeated(engine: str) -> None:
    """llama.cpp's generate draws the same response again under one seed: a group of clones, without any advantage."""
    drawn = {(response["prompt"], *response["response_ids"]) for response in read_responses(engine)}
    assert len(drawn) == 32


def test_the_trainer_in_bfloat16_scored_the_same_rollouts() -> None:
    kept = ("prompt", "response_ids", "rollout_logprobs")
    float32, bfloat16 = (read_responses(name) for name in ("vllm_bf16", "vllm_bf16_both"))
    assert [[row[key] for key in kept] for row in float32] == [[row[key] for key in kept] for row in bfloat16]
    assert float32 != bfloat16


def published_values(batch: Batch) -> tuple[float, ...]:
    settings = {"mode": "mask", "upper": 2.0, "veto": 1e-4}
    tokens = oracle.metrics(*batch, level="token", **settings)
    sequences = oracle.metrics(*batch, level="sequence", **settings)
    log_ratios = [old - rollout for rows in zip(*batch[:2], strict=True) for old, rollout in zip(*rows, strict=True)]
    return (
        len(log_ratios),
        tokens["mismatch_kl"],
        tokens["mismatch_k3_kl"],
        max(abs(value) for value in log_ratios),
        tokens["rollout_is_eff_sample_size"],
        sequences["rollout_is_seq_masked_fraction"],
    )


@pytest.mark.parametrize("engine", PUBLISHED)
def test_the_mismatch_is_the_one_published(engine: str) -> None:
    for value, published in zip(published_values(read_batch(engine)), PUBLISHED[engine].split(), strict=True):
        decimals = len(published.partition(".")[2])
        assert value == pytest.approx(float(published), abs=0.51 * 10.0**-decimals, rel=0.0)
