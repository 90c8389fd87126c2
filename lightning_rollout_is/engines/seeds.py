"""Independent random streams out of one seed."""

import torch
from torch import distributed


def stream_seed(seed: int, draw: int) -> int:
    """Seed of one draw on this rank.

    Neighbouring seeds, ranks and draws give unrelated streams, so that data-parallel ranks do not sample the same
    responses.

    Args:
        seed: The run's seed, at least 0.
        draw: Number of the draw, at least 0.

    Returns:
        A number in [0, 2^32).

    Example:
        >>> stream_seed(0, draw=0), stream_seed(0, draw=1)
        (2968811710, 3964924996)
    """
    import numpy as np

    rank = distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
    return int(np.random.SeedSequence([seed, draw, rank]).generate_state(1)[0])


def sequence_seeds(seed: int, draw: int, sequences: int) -> list[int]:
    """A seed for each sequence of one draw on this rank, so that copies of a prompt get responses of their own.

    Args:
        seed: The run's seed, at least 0.
        draw: Number of the draw, at least 0.
        sequences: How many.

    Returns:
        Numbers in [0, 2^31), which servers take.

    Example:
        >>> sequence_seeds(0, draw=0, sequences=2)
        [1386600642, 1782791124]
    """
    import numpy as np

    numbers = np.random.SeedSequence(stream_seed(seed, draw)).generate_state(sequences)
    return [int(number) >> 1 for number in numbers]


def seeded_generator(seed: int, draw: int) -> torch.Generator:
    """A torch generator that starts at :func:`stream_seed`.

    Example:
        >>> torch.rand(1, generator=seeded_generator(0, draw=0)).shape
        torch.Size([1])
    """
    return torch.Generator().manual_seed(stream_seed(seed, draw))
