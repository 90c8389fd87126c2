"""vLLM in this process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch.utilities.seed import isolate_rng
from torch import distributed

from lightning_rollout_is.engines.fast_folder import FAST_FOLDER
from lightning_rollout_is.engines.filters import SamplingFilters
from lightning_rollout_is.engines.interface import Completion
from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.engines.saved_policy import save_policy
from lightning_rollout_is.engines.seeds import sequence_seeds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ENVIRONMENT = {
    # The engine's weights must be in reach: no process of its own.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""What vLLM reads when it is imported; a variable that is set already stays."""


class VLLMEngine:
    """Samples with vLLM, on the GPU, or on the CPU with the package ``vllm-cpu``.

    Args:
        dtype: Precision of weights and arithmetic, such as ``"bfloat16"`` or ``"float32"``.
        seed: Seed of the sampling; each call, each sequence and each rank draws from a stream of its own.
        max_model_len: Most tokens of a prompt and its response.
        parallel: Sequences that are sampled at once.
        top_k: Keep the so many most probable tokens; 0 keeps all. See :class:`SamplingFilters`.
        top_p: Keep the fewest tokens whose probabilities sum to this; 1 keeps all.
        min_p: Keep tokens with this fraction of the greatest probability; 0 keeps all.
        **settings: Further arguments of ``vllm.LLM``, such as ``gpu_memory_utilization``.

    Raises:
        ImportError: vllm is not installed.
        RuntimeError: There are several ranks, and vLLM in their processes would join their process group.
        ValueError: A setting is not allowed.
    """

    def __init__(
        self,
        dtype: str = "bfloat16",
        seed: int = 0,
        max_model_len: int = 512,
        parallel: int = 64,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        **settings: Any,
    ) -> None:
        self.filters = SamplingFilters(top_k, top_p, min_p)
        self.filters.warn_of_ratio()
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._vllm = require("vllm", extra="vllm")
        self.seed = seed
        self.settings = {
            "dtype": dtype,
            "max_model_len": max_model_len,
            "max_num_seqs": parallel,
            "skip_tokenizer_init": True,
            "enforce_eager": True,
            # Keys and values of the last weights must not serve the next prompts.
            "enable_prefix_caching": False,
            # The log-probs after the temperature and the filters: what was sampled from.
            "logprobs_mode": "processed_logprobs",
            **settings,
        }
        self._draws = 0
        self._engine: Any = None

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Start vLLM with the policy's weights; from then on replace them in place."""
        if self._engine is None:
            self._engine = self._start(policy)
        else:
            weights = [(name, weight.detach().clone()) for name, weight in policy.state_dict().items()]
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._end = policy.config.eos_token_id

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample one response a prompt; log-probs are vLLM's, of the distribution that it sampled from."""
        if self._engine is None:
            raise RuntimeError("the engine has no weights yet; call sync_weights(policy) first")
        seeds = sequence_seeds(self.seed, self._draws, len(prompts))
        self._draws += 1
        sampling = [
            self._vllm.SamplingParams(
                temperature=temperature,
                max_tokens=max_new_tokens,
                seed=seed,
                logprobs=0,
                ignore_eos=True,
                stop_token_ids=[self._end],
                detokenize=False,
                **self.filters.as_dict(),
            )
            for seed in seeds
        ]
        tokens = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        return [_completion(output.outputs[0]) for output in self._engine.generate(tokens, sampling, use_tqdm=False)]

    def _start(self, policy: PreTrainedModel) -> Any:
        if distributed.is_initialized() and distributed.get_world_size() > 1:
            raise RuntimeError(
                "vLLM cannot share the process of one of several ranks; allowed: one rank, or rollout=vllm_server"
            )
        # vLLM seeds the process that it starts in.
        with isolate_rng(), tempfile.TemporaryDirectory(prefix="rollout-is-", dir=FAST_FOLDER) as folder:
            save_policy(policy, Path(folder) / "policy")
            return self._vllm.LLM(model=f"{folder}/policy", **self.settings)


def _completion(output: Any) -> Completion:
    token_ids = list(output.token_ids)
    return Completion(token_ids, [step[token].logprob for step, token in zip(output.logprobs, token_ids, strict=True)])
