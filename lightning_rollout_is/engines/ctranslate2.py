"""CTranslate2, an inference engine with its own kernels, key-value cache, quantisation and sampler."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_rollout_is.engines.fast_folder import FAST_FOLDER
from lightning_rollout_is.engines.interface import Completion
from lightning_rollout_is.engines.llama_spec import llama_spec, token_strings
from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.engines.seeds import stream_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class CTranslate2Engine:
    """Samples from a ``LlamaForCausalLM`` on the CPU with CTranslate2.

    Args:
        compute_type: Precision of the engine's weights and matrix products, such as ``"int8"`` or ``"float32"``;
            some CPUs have ``"int16"`` and ``"bfloat16"`` too. ``"float32"`` agrees with the trainer to about 1e-6 nats.
        seed: Seed of the sampling; each refresh and each rank draws from a stream of its own.

    Raises:
        ImportError: ctranslate2 is not installed.
        ValueError: This CPU does not have the precision.
    """

    def __init__(self, compute_type: str = "int8", seed: int = 0) -> None:
        self._ctranslate2 = require("ctranslate2", extra="ctranslate2")
        available = sorted(self._ctranslate2.get_supported_compute_types("cpu"))
        if compute_type not in available:
            raise ValueError(f"compute_type = {compute_type!r} is not available; on this CPU: {', '.join(available)}")
        self.compute_type = compute_type
        self.seed = seed
        self._draws = 0
        self._generator: Any = None

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Build the engine anew with the policy's present weights."""
        self._tokens = token_strings(policy.config)
        with tempfile.TemporaryDirectory(prefix="rollout-is-", dir=FAST_FOLDER) as folder:
            llama_spec(policy).save(folder)
            # More than one thread makes the refresh slower by a factor of ten, and the sampling no faster.
            self._generator = self._ctranslate2.Generator(
                folder, device="cpu", compute_type=self.compute_type, inter_threads=1, intra_threads=1
            )

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample one response a prompt; log-probs come from the engine's own logits."""
        if self._generator is None:
            raise RuntimeError("the engine has no weights yet; call sync_weights(policy) first")
        # The seed is read once, by the thread that samples: a new one for each refresh.
        self._ctranslate2.set_random_seed(stream_seed(self.seed, self._draws))
        self._draws += 1
        completions: dict[int, Completion] = {}
        for rows in _rows_of_equal_length(prompts):
            results = self._sample([prompts[row] for row in rows], max_new_tokens, temperature)
            completions.update(zip(rows, results, strict=True))
        return [completions[row] for row in range(len(prompts))]

    def _sample(self, prompts: list[Sequence[int]], max_new_tokens: int, temperature: float) -> list[Completion]:
        results = self._generator.generate_batch(
            [[self._tokens[token] for token in prompt] for prompt in prompts],
            max_length=max_new_tokens,
            include_prompt_in_result=False,
            sampling_topk=0,
            sampling_topp=1.0,
            sampling_temperature=temperature,
            return_end_token=True,
            return_logits_vocab=True,
        )
        return [_completion(result, temperature) for result in results]


def _rows_of_equal_length(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    # In a ragged batch CTranslate2 decodes the longer prompts' tails, and returns those constrained logits as samples'.
    rows: dict[int, list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows.setdefault(len(prompt), []).append(row)
    return list(rows.values())


def _completion(result: Any, temperature: float) -> Completion:
    token_ids = list(result.sequences_ids[0])
    # The logits are those before the temperature.
    logits = np.stack([np.asarray(step, dtype=np.float64) for step in result.logits[0]])[: len(token_ids)] / temperature
    log_normalizer = np.logaddexp.reduce(logits, axis=-1)
    sampled = logits[np.arange(len(token_ids)), token_ids]
    return Completion(token_ids, (sampled - log_normalizer).tolist())
