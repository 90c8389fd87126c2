"""The tables of docs/estimators.md, as Markdown. Medians over worlds; every world is summed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from .moments import Moments, Settings, Summary, mismatch, moments, summary
from .worlds import Worlds, draw, faulty, responses_of, worlds_of

WORLDS = 99
SIZES = {"small": 1 / 100, "medium": 1 / 10, "large": 2 / 5}
LENGTHS, WORLDS_PER_LENGTH = (1, 2, 3, 4, 6), 33
VETO = 1e-4

FREE: dict[str, Any] = {"upper": 1e9, "veto": None}
NONE = ("none", "")
ESTIMATORS: dict[tuple[str, str], Settings] = {
    NONE: None,
    ("token", "no bound"): {"level": "token", **FREE},
    ("token", "truncate at 2"): {"level": "token", "mode": "truncate", "upper": 2.0, "veto": VETO},
    ("token", "mask outside 1/2 to 2"): {"level": "token", "mode": "mask", "upper": 2.0, "veto": VETO},
    ("sequence", "no bound"): {"level": "sequence", **FREE},
    ("sequence", "truncate at 2"): {"level": "sequence", "mode": "truncate", "upper": 2.0, "veto": VETO},
    ("sequence", "mask outside 1/2 to 2"): {"level": "sequence", "mode": "mask", "upper": 2.0, "veto": VETO},
    ("geometric", "no bound"): {"level": "geometric", **FREE},
    ("geometric", "truncate at 1.001"): {"level": "geometric", "mode": "truncate", "upper": 1.001, "veto": VETO},
    ("geometric", "mask outside 1/1.001 to 1.001"): {"level": "geometric", "mode": "mask", "upper": 1.001, "veto": VETO},
}
UNBOUNDED = [NONE, *((level, "no bound") for level in ("token", "geometric", "sequence"))]


def documented(size: float) -> Worlds:
    """99 worlds of at most three tokens out of ``a``, ``b`` and the end."""
    responses = responses_of(".ab", 3)
    return worlds_of(responses, [draw(seed, responses) for seed in range(WORLDS)], size)


def of_length(length: int, size: float) -> Worlds:
    """33 worlds whose responses all have one length, of ``a`` and ``b``."""
    responses = responses_of("ab", length)
    return worlds_of(responses, [draw(seed, responses) for seed in range(WORLDS_PER_LENGTH)], size)


def with_a_fault() -> Worlds:
    """99 worlds where the engine samples a token that is all but impossible to the trainer."""
    responses = responses_of(".ab", 3)
    return faulty(responses, [draw(seed, responses) for seed in range(WORLDS)])


def summaries(worlds: Worlds, chosen: Iterable[tuple[str, str]] = tuple(ESTIMATORS)) -> dict[tuple[str, str], Summary]:
    on_policy = moments(worlds.on_policy, None)
    return {key: summary(moments(worlds, ESTIMATORS[key]), on_policy) for key in chosen}


def all_tables() -> str:
    found = {name: summaries(documented(size)) for name, size in SIZES.items()}
    parts = [sizes(), *(levels(found, *column) for column in COLUMNS), orders(found), lengths(), veto()]
    return "\n".join(parts)


def sizes() -> str:
    rows = []
    for name, size in SIZES.items():
        k3, chi_square = (figure(median(x)) for x in mismatch(documented(size)))
        half = math.log(2.0) / math.log1p(float(chi_square))
        rows.append([name, f"1 ± {size:g}", k3, chi_square, f"{half:.0f}"])
    head = ["mismatch", "odds times", "K3 a token, nats", "chi-square a token", "tokens until a product's ESS is 1/2"]
    return table("How large the mismatches are.", head, rows)


COLUMNS: list[tuple[str, Callable[[Summary], Tensor]]] = [
    ("**Bias**: length of the expected gradient's error, over the length of the gradient on policy.", lambda s: s.bias),
    ("**Direction**: cosine between the expected gradient and the one on policy.", lambda s: s.cosine),
    ("**Variance** of one response's gradient, over that on policy.", lambda s: s.variance),
    ("**Effective sample size** of the weights that multiply the loss, over tokens.", lambda s: s.ess),
]


def levels(found: dict[str, dict[tuple[str, str], Summary]], title: str, column: Callable[[Summary], Tensor]) -> str:
    rows = [[*key, *(figure(median(column(of[key]))) for of in found.values())] for key in ESTIMATORS]
    return table(title, ["level", "mode", *found], rows)


def orders(found: dict[str, dict[tuple[str, str], Summary]]) -> str:
    rows = []
    for left, right in (("token", "none"), ("geometric", "none"), ("geometric", "token"), ("sequence", "token")):
        keys = [next(key for key in UNBOUNDED if key[0] == name) for name in (left, right)]
        smaller = [int((of[keys[0]].bias < of[keys[1]].bias).sum()) for of in found.values()]
        rows.append([f"{left} below {right}", *(f"{count} of {WORLDS}" for count in smaller)])
    return table("In how many worlds the bias without bounds is smaller.", ["", *found], rows)


def lengths() -> str:
    rows = []
    for length in LENGTHS:
        of = summaries(of_length(length, SIZES["medium"]), UNBOUNDED)
        last = of[UNBOUNDED[-1]]
        rows.append([str(length), *(figure(median(of[key].bias)) for key in UNBOUNDED), figure(median(last.ess))])
    head = ["tokens", *(f"bias, {level}" for level, _ in UNBOUNDED), "effective sample size, sequence"]
    return table("Responses of one length, medium mismatch, no bounds.", head, rows)


def veto() -> str:
    worlds = with_a_fault()
    on_policy, rows = moments(worlds.on_policy, None), [["none", "", figure(median(_bias(worlds, None))), ""]]
    for key in UNBOUNDED[1:]:
        of = [summary(_vetoed(worlds, key, threshold), on_policy).bias for threshold in (None, VETO)]
        rows.append([*key, *(figure(median(bias)) for bias in of)])
    title = "Bias where the engine samples, one time in five, a first token that has probability 1e-5 for the trainer."
    return table(title, ["level", "mode", "no veto", f"veto at {VETO:g}"], rows)


def _vetoed(worlds: Worlds, key: tuple[str, str], threshold: float | None) -> Moments:
    return moments(worlds, {**(ESTIMATORS[key] or {}), "veto": threshold})


def _bias(worlds: Worlds, settings: Settings) -> Tensor:
    return summary(moments(worlds, settings), moments(worlds.on_policy, None)).bias


def median(x: Tensor) -> float:
    """Over the worlds; NaN if it is undefined in half of them."""
    return float(x.nanmedian()) if 2 * int(x.isnan().sum()) < len(x) else math.nan


def figure(x: float) -> str:
    """Two digits of a small number, three decimals of another; 0 for what rounding leaves of it, a dash for NaN."""
    if math.isnan(x):
        return "–"
    if abs(x) < 1e-12:
        return "0"
    return f"{x:.3f}" if x > 0.1 else f"{x:#.2g}"


def table(title: str, head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join([title, "", *lines, ""])
