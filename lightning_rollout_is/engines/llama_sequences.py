"""Many sequences at once in llama.cpp: token ids in, logits of each sequence's next token out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_rollout_is.engines.llama_binding import LlamaBinding

BATCH = 512
"""Most tokens that one call of llama.cpp takes."""


class Cell(NamedTuple):
    """One token of one or more sequences, at its place in the cache."""

    token: int
    """Token id."""
    position: int
    """Its place in the sequence, from 0."""
    sequences: tuple[int, ...]
    """Sequences that have this token there, and the same tokens before it."""
    last_of: tuple[int, ...]
    """Those among them whose next token is wanted."""


def shared_cells(prompts: Sequence[Sequence[int]]) -> list[Cell]:
    """What the prompts are made of, each common beginning once.

    The responses of a group share their prompt, and few-shot prompts their examples, so that reading them once saves
    most of the work and of the cache.

    Args:
        prompts: Token ids of each sequence.

    Returns:
        Cells by position: what a token attends to comes before it.

    Example:
        >>> for cell in shared_cells([[5, 6], [5, 7], [5, 7]]):
        ...     print(*cell)
        5 0 (0, 1, 2) ()
        6 1 (0,) (0,)
        7 1 (1, 2) (1, 2)
    """
    sequences: dict[tuple[int, ...], list[int]] = {}
    for sequence, prompt in enumerate(prompts):
        for length in range(1, len(prompt) + 1):
            sequences.setdefault(tuple(prompt[:length]), []).append(sequence)
    return [
        Cell(
            start[-1], len(start) - 1, tuple(members), tuple(row for row in members if len(prompts[row]) == len(start))
        )
        for start, members in sorted(sequences.items(), key=lambda item: len(item[0]))
    ]


class LlamaSequences:
    """A llama.cpp context with its cache, for as long as some responses are sampled.

    Args:
        binding: llama.cpp.
        model: Pointer to a loaded model.
        prompts: Token ids of each sequence.
        max_new_tokens: Tokens that will be added to each.
        vocabulary: Number of token ids.
        threads: Threads of llama.cpp.
        batch: Most tokens of one call.

    Raises:
        RuntimeError: llama.cpp cannot make the context.
    """

    def __init__(
        self,
        binding: LlamaBinding,
        model: int,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        vocabulary: int,
        threads: int,
        batch: int = BATCH,
    ) -> None:
        self._api, self._vocabulary, self._most = binding.api, vocabulary, batch
        self._prompt_cells = shared_cells(prompts)
        self._lengths = [len(prompt) for prompt in prompts]
        settings = self._api.llama_context_default_params()
        settings.n_ctx = len(self._prompt_cells) + len(prompts) * max_new_tokens
        settings.n_batch = settings.n_ubatch = batch
        settings.n_seq_max = len(prompts)
        settings.n_threads = settings.n_threads_batch = threads
        for name, value in binding.context_settings.items():
            setattr(settings, name, value)
        self._context = self._api.llama_init_from_model(model, settings)
        if not self._context:
            raise RuntimeError(
                f"llama.cpp could not make a context for {len(prompts)} sequences of up to "
                f"{max(self._lengths) + max_new_tokens} tokens; set a smaller `parallel`"
            )
        self._batch = self._api.llama_batch_init(batch, 0, len(prompts))

    def __enter__(self) -> LlamaSequences:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._api.llama_batch_free(self._batch)
        self._api.llama_free(self._context)

    def read_prompts(self) -> dict[int, NDArray[np.float64]]:
        """Logits of the first token of every response, by sequence."""
        return self._decode(self._prompt_cells)

    def append(self, tokens: Mapping[int, int]) -> dict[int, NDArray[np.float64]]:
        """Add a token to some sequences.

        Args:
            tokens: Token id by sequence.

        Returns:
            Logits of the next token of these sequences.
        """
        cells = [Cell(token, self._lengths[row], (row,), (row,)) for row, token in tokens.items()]
        for row in tokens:
            self._lengths[row] += 1
        return self._decode(cells)

    def _decode(self, cells: Sequence[Cell]) -> dict[int, NDArray[np.float64]]:
        logits: dict[int, NDArray[np.float64]] = {}
        for batch in _parts(cells, self._most):
            self._fill(batch)
            status = self._api.llama_decode(self._context, self._batch)
            if status != 0:
                raise RuntimeError(f"llama.cpp could not decode {len(batch)} tokens: llama_decode returned {status}")
            for index, cell in enumerate(batch):
                if cell.last_of:
                    logits.update(dict.fromkeys(cell.last_of, self._logits(index)))
        return logits

    def _fill(self, cells: Sequence[Cell]) -> None:
        self._batch.n_tokens = len(cells)
        for index, cell in enumerate(cells):
            self._batch.token[index] = cell.token
            self._batch.pos[index] = cell.position
            self._batch.n_seq_id[index] = len(cell.sequences)
            for place, sequence in enumerate(cell.sequences):
                self._batch.seq_id[index][place] = sequence
            self._batch.logits[index] = bool(cell.last_of)

    def _logits(self, index: int) -> NDArray[np.float64]:
        pointer: Any = self._api.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(pointer, (self._vocabulary,)).astype(np.float64)


def _parts(cells: Sequence[Cell], most: int) -> Iterator[Sequence[Cell]]:
    for start in range(0, len(cells), most):
        yield cells[start : start + most]
