"""vLLM, or another server with its completions API, over HTTP: token ids in, token ids and log-probs out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import distributed

from lightning_rollout_is.engines.filters import SamplingFilters
from lightning_rollout_is.engines.interface import Completion
from lightning_rollout_is.engines.post_json import RequestError, Retries, post_json
from lightning_rollout_is.engines.saved_policy import save_policy
from lightning_rollout_is.engines.seeds import sequence_seeds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

START = (
    "VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model {folder} --host 127.0.0.1 "
    "--port {port} --skip-tokenizer-init --generation-config vllm --logprobs-mode processed_logprobs "
    "--no-enable-prefix-caching"
)
"""How to start a server that this engine can use. Development mode lets it take new weights."""


class VLLMServerEngine:
    """Samples from a vLLM server on this machine.

    Each sequence is a request of its own with a seed of its own: prompts of one request would all draw with the same
    seed, and copies of a prompt get the same response. A request that fails is sent again, a bounded number of times,
    with the same seed; if it still fails, :meth:`generate` raises, so that no step is trained on part of its responses.

    New weights go through ``folder``, from which the server loads them. Start the server on it after the first
    ``sync_weights``, which writes the folder and, where nothing answers, says the command.

    Args:
        url: Where the server listens.
        folder: Folder of the policy's weights, seen by both sides under this path; made absolute.
        model: The server's name of the model; ``folder`` by default, which is vLLM's default too.
        seed: Seed of the sampling; each call, each sequence and each rank draws from a stream of its own.
        parallel: Requests under way at once; the server batches them.
        attempts: Times that a request is sent, the first included.
        timeout: Seconds to wait for an answer, each time.
        pause: Seconds before the second attempt; twice as many before each further one.
        top_k: Keep the so many most probable tokens; 0 keeps all. See :class:`SamplingFilters`.
        top_p: Keep the fewest tokens whose probabilities sum to this; 1 keeps all.
        min_p: Keep tokens with this fraction of the greatest probability; 0 keeps all.

    Raises:
        ValueError: A setting is not allowed.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        folder: str = "runs/vllm_policy",
        model: str | None = None,
        seed: int = 0,
        parallel: int = 64,
        attempts: int = 4,
        timeout: float = 120.0,
        pause: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
    ) -> None:
        if parallel < 1:
            raise ValueError(f"parallel = {parallel} is not allowed; allowed: a whole number from 1 up")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url = {url!r} is not allowed; allowed: an address that starts with http:// or https://")
        self.filters = SamplingFilters(top_k, top_p, min_p)
        self.filters.warn_of_ratio()
        self.retries = Retries(attempts, timeout, pause)
        self.url, self.folder, self.seed, self.parallel = url.rstrip("/"), Path(folder).resolve(), seed, parallel
        self.model = model or str(self.folder)
        self._draws = 0
        self._end: int | None = None

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Write the policy's present weights, and have the server load them."""
        if _rank() == 0:
            save_policy(policy, self.folder)
            self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(self.folder)}})
            # Keys and values of the last weights must not serve the next prompts.
            self._post("/reset_prefix_cache", {})
        if distributed.is_initialized():
            distributed.barrier()
        self._end = policy.config.eos_token_id

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample one response a prompt; log-probs are the server's, of the distribution that it sampled from."""
        if self._end is None:
            raise RuntimeError("the engine has no weights yet; call sync_weights(policy) first")
        seeds = sequence_seeds(self.seed, self._draws, len(prompts))
        self._draws += 1
        shared = {
            "model": self.model,
            "max_tokens": max_new_tokens,
            "temperature": temperature,
            "logprobs": 0,
            "return_token_ids": True,
            # The server has no tokenizer to name them with.
            "return_tokens_as_token_ids": True,
            "ignore_eos": True,
            "stop_token_ids": [self._end],
            **self.filters.as_dict(),
        }
        bodies = [{**shared, "prompt": list(prompt), "seed": seed} for prompt, seed in zip(prompts, seeds, strict=True)]
        with ThreadPoolExecutor(self.parallel) as threads:
            answers = [threads.submit(self._post, "/v1/completions", body) for body in bodies]
            try:
                return [_completion(answer.result()) for answer in answers]
            except RequestError:
                # What has not been sent would fail as slowly.
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        try:
            return post_json(self.url + path, body, self.retries)
        except RequestError as error:
            raise RequestError(f"{error}. {self._remedy(error, path)}", error.status) from error

    def _remedy(self, error: RequestError, path: str) -> str:
        start = START.format(folder=self.folder, port=self.url.rsplit(":", 1)[-1])
        if error.status is None:
            return f"Is a server running? Start one with: {start}"
        if error.status == 404 and path != "/v1/completions":
            return f"Without development mode a server takes no new weights. Start it with: {start}"
        return f"A server that this engine can use starts with: {start}"


def _rank() -> int:
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def _completion(answer: Any) -> Completion:
    choice = answer["choices"][0]
    token_ids, log_probs = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
    if not token_ids or not log_probs or len(token_ids) != len(log_probs):
        raise RequestError(
            f"the server answered with {len(token_ids or ())} token ids and {len(log_probs or ())} log-probs; "
            "it must give as many of both, and at least one: vLLM does from version 0.10.2 on"
        )
    # A log-prob that the server left out stays missing, and is counted as such.
    return Completion(list(token_ids), [float("nan") if value is None else float(value) for value in log_probs])
