"""Rollouts that real engines made of SmolLM2-135M-Instruct, beside what PyTorch gave for the same tokens."""

import json
from pathlib import Path
from typing import Any

from tests.reference.batches import Batch

FOLDER = Path(__file__).parent / "data"
ENGINES = tuple(path.stem for path in sorted(FOLDER.glob("*.jsonl")))
PROMPTS = json.loads((FOLDER / "prompts.json").read_text())


def read_responses(engine: str) -> list[dict[str, Any]]:
    """32 responses; ``prompt`` is an index into PROMPTS, both ``..._logprobs`` have one value a token."""
    return [json.loads(line) for line in (FOLDER / f"{engine}.jsonl").read_text().splitlines()]


def read_batch(engine: str, length: int | None = None) -> Batch:
    """All responses of an engine, or the first ``length`` tokens of each."""
    responses = read_responses(engine)
    return Batch(
        old=[response["training_logprobs"][:length] for response in responses],
        rollout=[response["rollout_logprobs"][:length] for response in responses],
        mask=[[1.0] * len(response["response_ids"][:length]) for response in responses],
    )
