"""The engine that needs nothing more: a low-precision copy of the policy and transformers' ``generate``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_rollout_is.engines.interface import Completion
from lightning_rollout_is.engines.optional import require
from lightning_rollout_is.engines.seeds import stream_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class TransformersEngine:
    """Samples from a copy of the policy in another dtype.

    Args:
        dtype: Name of the copy's dtype: ``"bfloat16"``, ``"float16"`` or ``"float32"``.
        seed: Seed of the sampling; each call and each rank draws from a stream of its own.

    Raises:
        ImportError: transformers is not installed.
        ValueError: Another dtype.
    """

    def __init__(self, dtype: str = "bfloat16", seed: int = 0) -> None:
        self._generation = require("transformers.generation.configuration_utils", extra="transformers")
        if dtype not in DTYPES:
            raise ValueError(f"dtype = {dtype!r} is not allowed; allowed: {', '.join(DTYPES)}")
        self.dtype = DTYPES[dtype]
        self.seed = seed
        self._draws = 0
        self._model: PreTrainedModel | None = None

    def sync_weights(self, policy: PreTrainedModel) -> None:
        """Copy the policy's present weights."""
        if self._model is None:
            self._model = copy.deepcopy(policy).to(self.dtype).eval()
        self._model.load_state_dict(policy.state_dict())

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 1.0
    ) -> list[Completion]:
        """Sample one response a prompt; log-probs come from the very scores that were sampled from."""
        if self._model is None:
            raise RuntimeError("the engine has no weights yet; call sync_weights(policy) first")
        end, pad = self._model.config.eos_token_id, self._model.config.pad_token_id
        token_ids, attention_mask = _left_padded(prompts, pad, self._model.device)
        with torch.random.fork_rng():
            torch.manual_seed(stream_seed(self.seed, self._draws))
            output = self._model.generate(
                token_ids,
                attention_mask=attention_mask,
                generation_config=self._sampling(max_new_tokens, temperature, end, pad),
            )
        self._draws += 1
        sampled = output.sequences[:, token_ids.shape[1] :]
        scores = torch.stack(output.scores, dim=1).double().log_softmax(-1)
        log_probs = scores.gather(-1, sampled[..., None])[..., 0]
        return [_cut_at(end, *row) for row in zip(sampled.tolist(), log_probs.tolist(), strict=True)]

    def _sampling(self, max_new_tokens: int, temperature: float, end: int, pad: int) -> object:
        return self._generation.GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=True,
            temperature=temperature,
            top_k=0,
            top_p=1.0,
            eos_token_id=end,
            pad_token_id=pad,
            output_scores=True,
            return_dict_in_generate=True,
        )


def _left_padded(prompts: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    width = max(len(prompt) for prompt in prompts)
    token_ids = [[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    valid = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(token_ids, device=device), torch.tensor(valid, device=device)


def _cut_at(end: int, token_ids: list[int], log_probs: list[float]) -> Completion:
    length = token_ids.index(end) + 1 if end in token_ids else len(token_ids)
    return Completion(token_ids[:length], log_probs[:length])
