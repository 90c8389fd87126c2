"""The mismatch of every engine that is installed, on one policy and the same prompts.

Half a minute on two cores with the small policy; with the real one a minute more for each engine::

    python examples/compare_engines.py
    python examples/compare_engines.py --policy smollm2 --prompts 8 --tokens 24
    python examples/compare_engines.py --only llama.cpp
"""

import argparse
import logging
import time
from collections.abc import Callable, Mapping

import torch
from rich.console import Console
from rich.table import Table

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics, token_log_probs
from lightning_rollout_is.engines import (
    CTranslate2Engine,
    LlamaCppEngine,
    RolloutEngine,
    RoundedWeights,
    TransformersEngine,
    VLLMEngine,
)
from lightning_rollout_is.engines.gguf_file import WEIGHT_TYPES
from lightning_rollout_is.recipes import byte_tokens
from lightning_rollout_is.recipes.experience import pad_groups
from lightning_rollout_is.recipes.policy import tiny_llama
from lightning_rollout_is.recipes.sampling import GroupSampler, Sample
from lightning_rollout_is.recipes.smollm2 import SmolLM2Tokenizer, smollm2
from lightning_rollout_is.recipes.tasks import SortDigits

ENGINES: Mapping[str, Callable[[], RolloutEngine]] = {
    "CTranslate2 float32": lambda: CTranslate2Engine("float32"),
    "CTranslate2 int8": lambda: CTranslate2Engine("int8"),
    "CTranslate2, weights bf16": lambda: RoundedWeights(CTranslate2Engine("float32"), "bfloat16"),
    "CTranslate2, weights int4": lambda: RoundedWeights(CTranslate2Engine("float32"), "int4"),
    "transformers bfloat16": lambda: TransformersEngine("bfloat16"),
    **{f"llama.cpp {kind}": lambda kind=kind: LlamaCppEngine(kind) for kind in WEIGHT_TYPES},
    "vLLM float32": lambda: VLLMEngine("float32"),
    "vLLM bfloat16": lambda: VLLMEngine("bfloat16"),
}
POLICIES = {"tiny_llama": (tiny_llama, byte_tokens), "smollm2": (smollm2, None)}
SHOWN = {
    "KL": "mismatch_kl",
    "K3": "mismatch_k3_kl",
    "largest weight": "rollout_is_max",
    "token ESS": "rollout_is_eff_sample_size",
    "perplexity ratio": "mismatch_ppl_ratio",
}


@torch.no_grad()
def mismatch(policy: torch.nn.Module, sample: Sample) -> tuple[dict[str, float], float]:
    """The statistics of one rollout, and its greatest |log ratio|."""
    responses = pad_groups(sample.groups)
    log_prob = token_log_probs(policy(responses.token_ids[:, :-1]).logits, responses.token_ids[:, 1:])
    metrics = RolloutISMetrics(RolloutISConfig(rollout_is_threshold=2.0), prefix="")
    metrics.update(log_prob, responses.rollout_log_prob, responses.response_mask)
    log_ratio = (log_prob - responses.rollout_log_prob)[responses.response_mask]
    return {name: float(value) for name, value in metrics.compute().items()}, float(log_ratio.abs().max())


def measure(engine: RolloutEngine, policy: torch.nn.Module, arguments: argparse.Namespace) -> list[str]:
    """One row of the table."""
    tokenizer = POLICIES[arguments.policy][1] or SmolLM2Tokenizer()
    sizes = {"train_batch_size": arguments.prompts, "n": 8, "max_response_length": arguments.tokens}
    sampler = GroupSampler(engine, SortDigits(), tokenizer=tokenizer, **sizes)
    # The first refresh also starts the engine.
    engine.sync_weights(policy)
    start = time.perf_counter()
    engine.sync_weights(policy)
    refreshed = time.perf_counter()
    sample = sampler.sample(torch.Generator().manual_seed(0))
    sampled = time.perf_counter()
    values, greatest = mismatch(policy, sample)
    tokens = sum(len(completion.token_ids) for group in sample.groups for completion in group.completions)
    statistics = [f"{values[name]:.2g}" if name.endswith("kl") else f"{values[name]:.4f}" for name in SHOWN.values()]
    return [
        str(tokens),
        *statistics,
        f"{greatest:.2g}",
        f"{refreshed - start:.2f}",
        f"{tokens / (sampled - refreshed):.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", choices=POLICIES, default="tiny_llama")
    parser.add_argument("--prompts", type=int, default=32, help="answered eight times each")
    parser.add_argument("--tokens", type=int, default=12, help="most tokens of a response")
    parser.add_argument("--only", default="", help="engines whose name begins so")
    arguments = parser.parse_args()
    logging.getLogger("gguf").setLevel(logging.WARNING)

    policy = POLICIES[arguments.policy][0]()
    columns = ["engine", "tokens", *SHOWN, "largest |log ratio|", "refresh, s", "tokens/s"]
    table, missing = Table(*columns, title=f"{arguments.policy}, {arguments.prompts} prompts x 8"), {}
    for name, make in ENGINES.items():
        if name.startswith(arguments.only):
            try:
                table.add_row(name, *measure(make(), policy, arguments))
            except (ImportError, ValueError) as error:
                missing[name] = str(error)
    console = Console(soft_wrap=True)
    console.print(table)
    for name, reason in missing.items():
        console.print(f"{name}: {reason}", style="dim", highlight=False, markup=False)


if __name__ == "__main__":
    main()
