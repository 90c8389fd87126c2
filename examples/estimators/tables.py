"""The tables of docs/estimators.md, as Markdown. Medians over worlds; every world is summed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from .moments import Settings, Summary, gradients, mismatch, moments, summary
from .worlds import Draw, Responses, Worlds, draw, faulty, filtered, probability, responses_of, worlds_of

WORLDS = 99
SIZES = {"small": 1 / 100, "medium": 1 / 10, "large": 2 / 5}
LENGTHS, WORLDS_PER_LENGTH = (1, 2, 4, 8), 33
VETO = 1e-4
DASH = "-"

Estimator = tuple[str, str]
"""Level and mode, as the tables name them."""


def _bounded(level: str, mode: str, upper: float) -> Settings:
    return {"level": level, "mode": mode, "upper": upper, "veto": VETO}


def _free(level: str) -> Settings:
    return {"level": level, "upper": 1e9, "veto": None}


NONE = ("none", "")
ESTIMATORS: dict[Estimator, Settings] = {
    NONE: None,
    ("token", "no bound"): _free("token"),
    ("token", "truncate at 2"): _bounded("token", "truncate", 2.0),
    ("token", "mask outside 1/2 to 2"): _bounded("token", "mask", 2.0),
    ("sequence", "no bound"): _free("sequence"),
    ("sequence", "truncate at 2"): _bounded("sequence", "truncate", 2.0),
    ("sequence", "mask outside 1/2 to 2"): _bounded("sequence", "mask", 2.0),
    ("geometric", "no bound"): _free("geometric"),
    ("geometric", "truncate at 1.001"): _bounded("geometric", "truncate", 1.001),
    ("geometric", "mask outside 1/1.001 to 1.001"): _bounded("geometric", "mask", 1.001),
}
UNBOUNDED = [NONE, *((level, "no bound") for level in ("token", "geometric", "sequence"))]


def documented(size: float) -> Worlds:
    """99 worlds of at most three tokens out of ``a``, ``b`` and the end."""
    return worlds_of(*_drawn(".ab", 3, WORLDS), size)


def of_length(length: int, size: float) -> Worlds:
    """33 worlds whose responses all have one length, of ``a`` and ``b``."""
    return worlds_of(*_drawn("ab", length, WORLDS_PER_LENGTH), size)


def with_a_fault() -> Worlds:
    """99 worlds where the engine samples a token that is all but impossible to the trainer."""
    return faulty(*_drawn(".ab", 3, WORLDS))


def with_a_filter() -> Worlds:
    """99 worlds where the engine never samples the least likely token."""
    return filtered(*_drawn(".ab", 3, WORLDS))


def _drawn(tokens: str, longest: int, worlds: int) -> tuple[Responses, list[Draw]]:
    responses = responses_of(tokens, longest)
    return responses, [draw(seed, responses) for seed in range(worlds)]


def summaries(worlds: Worlds, chosen: Iterable[Estimator] = tuple(ESTIMATORS)) -> dict[Estimator, Summary]:
    on_policy = moments(worlds.on_policy, None)
    return {key: summary(moments(worlds, ESTIMATORS[key]), on_policy) for key in chosen}


def all_tables() -> str:
    found = {name: summaries(documented(size)) for name, size in SIZES.items()}
    of_levels = [levels(found, *pair) for pair in PAIRS]
    return "\n".join([sizes(), *of_levels, orders(found), batches(), lengths(), veto(), filters(), aggregations()])


def sizes() -> str:
    rows = []
    for name, size in SIZES.items():
        k3, chi_square = (figure(median(x)) for x in mismatch(documented(size)))
        half = math.log(2.0) / math.log1p(float(chi_square))
        rows.append([name, f"1 ± {size:g}", k3, chi_square, f"{half:.0f}"])
    head = ["mismatch", "odds times", "K3 a token, nats", "chi-square a token", "tokens until a product's ESS is 1/2"]
    return table("How large the mismatches are.", head, rows)


Column = Callable[[Summary], Tensor]
PAIRS: list[tuple[str, dict[str, Column]]] = [
    (
        "Bias: length of the expected gradient's error, over the length of the gradient on policy. "
        "Variance: of one response's gradient, over that on policy.",
        {"bias": lambda s: s.bias, "variance": lambda s: s.variance},
    ),
    (
        "Cosine: between the expected gradient and the one on policy. "
        "ESS: effective sample size of the weights that multiply the loss, over tokens. A dash: no gradient is left.",
        {"cosine": lambda s: s.cosine, "ESS": lambda s: s.ess},
    ),
]


def levels(found: dict[str, dict[Estimator, Summary]], title: str, columns: dict[str, Column]) -> str:
    head = ["level", "mode", *(f"{name}, {size}" for name in columns for size in found)]
    rows = [
        [*key, *(figure(median(column(of[key]))) for column in columns.values() for of in found.values())]
        for key in ESTIMATORS
    ]
    return table(title, head, rows)


def orders(found: dict[str, dict[Estimator, Summary]]) -> str:
    rows = []
    for left, right in (("token", "none"), ("geometric", "none"), ("geometric", "token"), ("sequence", "token")):
        keys = [next(key for key in UNBOUNDED if key[0] == name) for name in (left, right)]
        smaller = [int((of[keys[0]].bias < of[keys[1]].bias).sum()) for of in found.values()]
        rows.append([f"{left} below {right}", *(f"{count} of {WORLDS}" for count in smaller)])
    return table("In how many worlds the bias without bounds is smaller.", ["", *found], rows)


def lengths() -> str:
    rows = []
    for length in LENGTHS:
        worlds = of_length(length, SIZES["medium"])
        of = summaries(worlds, UNBOUNDED)
        biases = [figure(median(of[key].bias)) for key in UNBOUNDED]
        rows.append([str(length), *biases, figure(median(of[UNBOUNDED[-1]].ess)), *_needed(worlds)])
    head = ["tokens", *(f"bias, {level}" for level, _ in UNBOUNDED), "ESS, sequence", *NEEDED]
    return table("Responses of one length, medium mismatch, no bounds, 33 worlds.", head, rows)


def batches() -> str:
    rows = [[name, *_needed(documented(size))] for name, size in SIZES.items()]
    return table("From how many responses on the sequence level has the smaller error.", ["mismatch", *NEEDED], rows)


NEEDED = ["responses, against none", "responses, against token"]


def _needed(worlds: Worlds) -> list[str]:
    """What is enough in nine worlds of ten."""
    counts = (float(break_even(worlds, other).nanquantile(0.9)) for other in UNBOUNDED[:2])
    return [DASH if math.isnan(count) else str(max(1, math.ceil(count))) for count in counts]


def break_even(worlds: Worlds, other: Estimator) -> Tensor:
    """Responses at which bias^2 + variance / responses is that of the sequence level; NaN if the other has no bias."""
    sequence, found = (moments(worlds, ESTIMATORS[key]) for key in (("sequence", "no bound"), other))
    squared_bias = (found.gradient - sequence.gradient).square().sum(-1)
    return (sequence.variance - found.variance) / squared_bias.where(squared_bias > 1e-24, torch.nan)


def veto() -> str:
    worlds = with_a_fault()
    on_policy = moments(worlds.on_policy, None)
    rows = []
    for key in UNBOUNDED:
        of = [summary(moments(worlds, _with_veto(key, threshold)), on_policy).bias for threshold in (None, VETO)]
        rows.append([key[0], *(figure(median(bias)) for bias in of)])
    title = "Bias where the engine samples, one time in five, a first token that has probability 1e-5 for the trainer."
    return table(title, ["level, no bound", "no veto", f"veto at {VETO:g}"], rows)


def _with_veto(key: Estimator, threshold: float | None) -> Settings:
    settings = ESTIMATORS[key]
    return None if settings is None else {**settings, "veto": threshold}


def filters() -> str:
    of = summaries(with_a_filter(), UNBOUNDED)
    rows = [[key[0], *(figure(median(x)) for x in (found.bias, found.cosine))] for key, found in of.items()]
    title = "Equal policies, but that the engine never samples the least likely of the three tokens."
    return table(title, ["level, no bound", "bias", "cosine"], rows)


def aggregations() -> str:
    worlds = [documented(size) for size in SIZES.values()]
    rows = [[name, *(figure(median(_deviation(world, scales))) for world in worlds)] for name, scales in SCALES.items()]
    title = "Sequence level without bounds: distance from the same aggregation on policy, over the latter's length."
    return table(title, ["aggregation", *SIZES], rows)


def _of_two(length: Tensor, chance: Tensor) -> Tensor:
    return (chance.unsqueeze(1) * 2.0 / (length.unsqueeze(1) + length)).sum(-1)


SCALES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "seq-mean-token-sum, any batch": lambda length, chance: torch.ones_like(chance),
    "seq-mean-token-mean, any batch": lambda length, chance: (1.0 / length).expand_as(chance),
    "token-mean, one response": lambda length, chance: (1.0 / length).expand_as(chance),
    "token-mean, two responses": _of_two,
    "token-mean, very many responses": lambda length, chance: 1.0 / (chance * length).sum(-1, keepdim=True),
    "token-mean, `denominator=` a constant": lambda length, chance: torch.full_like(chance, 0.5),
}
"""What the mean over the rest of the batch multiplies a response's summed loss by, given lengths and probabilities."""


def _deviation(worlds: Worlds, scales: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    found, right = (_aggregated(world, scales) for world in (worlds, worlds.on_policy))
    return (found - right).norm(dim=-1) / right.norm(dim=-1)


def _aggregated(worlds: Worlds, scales: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    chance, length = probability(worlds.rollout, worlds.responses), worlds.responses.mask.sum(-1).double()
    gradient, _ = gradients(worlds, ESTIMATORS["sequence", "no bound"])
    return ((chance * scales(length, chance)).unsqueeze(-1) * gradient).sum(1)


def median(x: Tensor) -> float:
    """Over the worlds; NaN if it is undefined in half of them."""
    return float(x.nanmedian()) if 2 * int(x.isnan().sum()) < len(x) else math.nan


def figure(x: float) -> str:
    """Two digits of a small number, three decimals of another; 0 for what rounding leaves of it, a dash for NaN."""
    if math.isnan(x):
        return DASH
    if abs(x) < 1e-12:
        return "0"
    return f"{x:.3f}" if x > 0.1 else f"{x:#.2g}"


def table(title: str, head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join([title, "", *lines, ""])
