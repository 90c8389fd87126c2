"""TensorBoard's custom-scalars page: the charts that a run has curves for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from lightning.pytorch import Trainer

from lightning_rollout_is.callbacks.boards import Board
from lightning_rollout_is.callbacks.charts import DETAILS, GROUPED, LIMIT, OVERVIEW, Bands, Chart, first_of
from lightning_rollout_is.callbacks.limits import limits_prefix

TITLE = "Rollout importance sampling"


class Page:
    """The categories of the page under one prefix.

    Args:
        prefix: What the keys of the statistics begin with.
        keys: All of them. A chart is on the page if they include its first curve.
    """

    def __init__(self, prefix: str, keys: Iterable[str]) -> None:
        names = {key.removeprefix(prefix) for key in keys}
        groups = {name.partition("/")[0] for name in names if "/" in name}
        self.prefix = prefix
        # The charts of a page that two runs share are merged where they are equal, so they do not depend on which of
        # their curves a run has.
        self.charts = {
            words: [chart for chart in charts if (first := first_of(chart)) in names or first.startswith(LIMIT)]
            for words, charts in {"": OVERVIEW, ", details": DETAILS}.items()
        }
        self.groups = {name: title for name, title in GROUPED.items() if name in groups}

    def categories(self, tag: Callable[[str], str]) -> list[Any]:
        """What TensorBoard calls its parts.

        Args:
            tag: From the key of a value to what the board knows it by.
        """
        from tensorboard.plugins.custom_scalar import layout_pb2  # type: ignore[import-untyped]

        def tag_of(name: str) -> str:
            limit = name.startswith(LIMIT)
            return tag(limits_prefix(self.prefix) + name.removeprefix(LIMIT) if limit else self.prefix + name)

        of = "" if self.prefix == "mismatch/" else f" ({self.prefix.rstrip('/')})"
        made = {words: [_proto(chart, tag_of) for chart in charts] for words, charts in self.charts.items()}
        made[", groups"] = [_lines(title, [f"{re.escape(tag_of(name))}/.+"]) for name, title in self.groups.items()]
        return [
            layout_pb2.Category(title=f"{TITLE}{words}{of}", chart=charts) for words, charts in made.items() if charts
        ]


@runtime_checkable
class HasPage(Protocol):
    """A callback that has curves for the page."""

    page: Page | None


def pages_of(trainer: Trainer) -> list[Page]:
    """The pages of all callbacks of a Trainer that have one by now: a board holds one layout alone."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    pages = [
        callback.page for callback in callbacks if isinstance(callback, HasPage) and isinstance(callback.page, Page)
    ]
    return list({page.prefix: page for page in pages}.values())


def write_pages(board: Board, pages: Iterable[Page]) -> None:
    """Put pages on a board, in place of those that were there."""
    from tensorboard.plugins.custom_scalar import layout_pb2
    from torch.utils.tensorboard.summary import custom_scalars

    layout = layout_pb2.Layout(category=[category for page in pages for category in page.categories(board.tag)])
    # The writer's own method knows no chart with two bands.
    summary = custom_scalars({})  # type: ignore[no-untyped-call]
    summary.value[0].tensor.string_val[0] = layout.SerializeToString()
    if board.writer.file_writer is not None:
        board.writer.file_writer.add_summary(summary)


def _proto(chart: Chart, tag_of: Callable[[str], str]) -> Any:
    if isinstance(chart, Bands):
        return _bands(chart.title, [[tag_of(name) for name in series] for series in chart.series])
    return _lines(chart.title, [re.escape(tag_of(name)) for name in chart.curves])


def _lines(title: str, patterns: Sequence[str]) -> Any:
    from tensorboard.plugins.custom_scalar import layout_pb2

    # A pattern that is open at its end would match rollout_is_mean_stderr too.
    content = layout_pb2.MultilineChartContent(tag=[f"^{pattern}$" for pattern in patterns])
    return layout_pb2.Chart(title=title, multiline=content)


def _bands(title: str, series: Iterable[Sequence[str]]) -> Any:
    from tensorboard.plugins.custom_scalar import layout_pb2

    bands = [
        layout_pb2.MarginChartContent.Series(value=middle, lower=lower, upper=upper) for middle, lower, upper in series
    ]
    return layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=bands))
