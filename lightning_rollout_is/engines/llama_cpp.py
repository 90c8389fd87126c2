"""llama.cpp, whose weight type is one knob for the size of the mismatch."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lightning_rollout_is.engines.draw import draw
from lightning_rollout_is.engines.fast_folder import FAST_FOLDER
from lightning_rollout_is.engines.filters import SamplingFilters
from lightning_rollout_is.engines.gguf_file import WEIGHT_TYPES, write_gguf
from lightning_rollout_is.engines.interface import Completion
from lightning_rollout_is.engines.llama_binding import llama_binding
from lightning_rollout_is.engines.llama_sequences import BATCH, LlamaSequences
from lightning_rollout_is.engines.seeds import stream_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_SEQUENCES = 256
"""Sequences that one llama.cpp context can tell apart."""


class LlamaCppEngine:
    """Samples from a ``LlamaForCausalLM`` on the CPU with llama.cpp.

    Tokens are drawn here, from the engine's own logits, each sequence with a random stream of its own: copies of a
    prompt never get the same draw, and the log-probs are those of the distribution that was sampled from.

    Args:
        weight_type: What the matrices are stored as: ``"F32"``, ``"F16"``, ``"BF16"``, ``"Q8_0"``, ``"Q5_1"``,
            ``"Q5_0"``, ``"Q4_1"`` or ``"Q4_0"``, from the smallest mismatch to the largest.
        seed: Seed of the sampling; each call, each sequence and each rank draws from a stream of its own.
        parallel: Sequences that are sampled at once, up to 256.
        threads: Threads of llama.cpp. They wait in a loop: more than there are idle cores are slower than one.
        top_k: Keep the so many most probable tokens; 0 keeps all. See :class:`SamplingFilters`.
        top_p: Keep the fewest tokens whose probabilities sum to this; 1 keeps all.
        min_p: Keep tokens with this fraction of the greatest probability; 0 keeps all.

    Raises:
        ImportError: gguf, or both llama_cpp and ik_llama_cpp, are not installed.
        ValueError: A setting is not allowed.
    """

    def __init__(
        self,
        weight_type: str = "Q8_0",
        seed: int = 0,
        parallel: int = 64,
        threads: int = 1,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
    ) -> None:
        if weight_type not in WEIGHT_TYPES:
            raise ValueError(f"weight_type = {weight_type!r} is not allowed; allowed: {', '.join(WEIGHT_TYPES)}")
        if not 1 <= parallel <= MOST_SEQUENCES:
            raise ValueError(f"parallel = {parallel} is not allowed; allowed: 1 to {MOST_SEQUENCES}, llama.cpp's limit")
        if threads < 1:
            raise ValueError(f"threads = {threads} is not allowed; allowed: a whole number from 1 up")
        self.filters = SamplingFilters(top_k, top_p, min_p)
        self.filters.warn_of_ratio()
        self.weight_type, self.seed, self.parallel, self.threads = weight_type, seed, parallel, threads
        self._binding = llama_binding()
        self._draws = 0
        self._model: int | None = None
        self._free: weakref.finalize[..., LlamaCppEngine] | None = None

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Load the policy's present weights, rounded to ``weight_type``."""
        with tempfile.TemporaryDirectory(prefix="rollout-is-", dir=FAST_FOLDER) as folder:
            path = Path(folder) / "policy.gguf"
            write_gguf(policy, path, self.weight_type)
            self._load(path)
        self._end, self._vocabulary = policy.config.eos_token_id, policy.config.vocab_size

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample one response a prompt; log-probs come from the engine's own logits."""
        if self._model is None:
            raise RuntimeError("the engine has no weights yet; call sync_weights(policy) first")
        seeds = np.random.SeedSequence(stream_seed(self.seed, self._draws)).spawn(len(prompts))
        self._draws += 1
        streams = [np.random.default_rng(seed) for seed in seeds]
        completions: list[Completion] = []
        for start in range(0, len(prompts), self.parallel):
            rows = slice(start, start + self.parallel)
            completions += self._sample(self._model, prompts[rows], streams[rows], max_new_tokens, temperature)
        return completions

    def _sample(
        self,
        model: int,
        prompts: Sequence[Sequence[int]],
        streams: list[np.random.Generator],
        max_new_tokens: int,
        temperature: float,
    ) -> list[Completion]:
        completions = [Completion([], []) for _ in prompts]
        batch = self._binding.small_batches.get(self.weight_type, BATCH)
        sizes = {"max_new_tokens": max_new_tokens, "vocabulary": self._vocabulary, "threads": self.threads}
        with LlamaSequences(self._binding, model, prompts, batch=batch, **sizes) as sequences:
            logits = sequences.read_prompts()
            for remaining in reversed(range(max_new_tokens)):
                for row, row_logits in logits.items():
                    token, log_prob = draw(row_logits / temperature, streams[row], self.filters)
                    completions[row].token_ids.append(token)
                    completions[row].log_probs.append(log_prob)
                unfinished = {row: token for row in logits if (token := completions[row].token_ids[-1]) != self._end}
                if not (unfinished and remaining):
                    break
                logits = sequences.append(unfinished)
        return completions

    def _load(self, path: Path) -> None:
        api = self._binding.api
        settings = api.llama_model_default_params()
        settings.n_gpu_layers = 0
        # The file goes away as soon as it is read.
        settings.use_mmap = False
        model = api.llama_model_load_from_file(str(path).encode(), settings)
        if not model:
            raise RuntimeError(f"{self._binding.package} could not load the policy's weights as {self.weight_type}")
        if self._free is not None:
            self._free()
        self._model = model
        self._free = weakref.finalize(self, self._binding.free_model, model)
