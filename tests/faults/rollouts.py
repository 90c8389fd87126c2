"""Real rollouts of SmolLM2-135M-Instruct: what an engine gave for each sampled token, and what PyTorch gave for it."""

import json
from pathlib import Path

from tests.reference.batches import Batch

FOLDER = Path(__file__).parent / "data"
ENGINES = tuple(path.stem.removeprefix("smollm2_135m_") for path in sorted(FOLDER.glob("*.jsonl")))
"""A well matched engine (vLLM in bfloat16), and the worst of all (llama.cpp with 4-bit weights, KL 0.41)."""


def read_rollouts(engine: str) -> Batch:
    """32 responses of up to 48 tokens."""
    lines = (FOLDER / f"smollm2_135m_{engine}.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return Batch(
        old=[entry["training_logprobs"] for entry in entries],
        rollout=[entry["rollout_logprobs"] for entry in entries],
        mask=[[1.0] * len(entry["response_ids"]) for entry in entries],
    )
