"""The plugin switched on and off from step to step of one Trainer run, so that both are timed side by side."""

from timing import Row, median, uncertainty

# isort: split
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import lightning

from lightning_rollout_is import RolloutISCallback

WARMUP_PAIRS = 2
TARGET = 0.005
UNRESOLVED = "steps vary by more than what is looked for, so that this run does not decide"


class Toggled:
    """A dataloader that switches the plugin between steps: off, on, on, off, and so on.

    Off means that the callback is not in the Trainer and that the module has no metric, as under a null threshold. A
    step is all between two requests for data, and what the loader itself takes is counted apart.

    Args:
        batches: The loader; it has a length, so that Lightning does not fetch ahead.
        module: With the mixin.
        callback: The one in the Trainer.
        budget: Seconds after the warm-up in which batches are given out.
    """

    def __init__(self, batches: Any, module: Any, callback: RolloutISCallback, budget: float) -> None:
        self.batches, self.module, self.callback, self.budget = batches, module, callback, budget
        self.metrics = module.rollout_is_metrics
        self.steps: dict[bool, list[float]] = {False: [], True: []}
        self.loading: list[float] = []
        self.inside: list[float] = []
        self._calls: list[float] = []
        _time_calls(module, ("rollout_is_loss",), self._calls)
        _time_calls(callback, ("on_train_batch_start", "on_train_batch_end"), self._calls)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        batches, end = iter(self.batches), math.inf
        for number in range(len(self.batches)):
            if number == 2 * WARMUP_PAIRS:  # the first steps may compile
                end = time.perf_counter() + self.budget
            on = number % 4 in (1, 2)
            self._switch(on)
            start = time.perf_counter()
            batch = next(batches)
            loaded = time.perf_counter()
            yield batch
            self._note(on, loaded - start, time.perf_counter() - loaded)
            if time.perf_counter() > end:
                break
        self._switch(True)

    def _note(self, on: bool, loading: float, step: float) -> None:
        self.loading.append(loading)
        self.steps[on].append(step)
        if on:
            self.inside.append(sum(self._calls))
        self._calls.clear()

    def _switch(self, on: bool) -> None:
        self.module.rollout_is_metrics = self.metrics if on else None
        others = [other for other in self.module.trainer.callbacks if other is not self.callback]
        self.module.trainer.callbacks = [*others, self.callback] if on else others

    def rows(self, what: str, with_loading: str | None = None, reason: str = "") -> list[Row]:
        """The difference of paired steps as a share of the step, and the time inside the plugin's own calls.

        Args:
            what: Names the step.
            with_loading: Names the step that includes the loader's time, if that is of interest.
            reason: Why the target is missed, where it is.
        """
        pairs = list(zip(self.steps[False], self.steps[True], strict=False))[WARMUP_PAIRS:]
        plain = median([off for off, _ in pairs])
        added = [on - off for off, on in pairs]
        inside = median(self.inside[WARMUP_PAIRS:])
        found = [_paired_row(what, plain, added, reason), _inside_row(what, plain, inside, reason)]
        if with_loading is not None:
            whole = plain + sum(self.loading) / len(self.loading)
            found += [_paired_row(with_loading, whole, added, reason), _inside_row(with_loading, whole, inside, reason)]
        return found


def fit_toggled(trainer: lightning.Trainer, module: Any, budget: float, batches: Iterable | None = None) -> Toggled:
    """Train with the plugin at every other step.

    Args:
        trainer: With a RolloutISCallback.
        module: With the mixin.
        budget: Seconds that it may take after the warm-up.
        batches: The loader; None for the module's own.
    """
    (callback,) = (callback for callback in trainer.callbacks if isinstance(callback, RolloutISCallback))
    toggled = Toggled(batches, module, callback, budget)
    if batches is not None:
        trainer.fit(module, toggled)
        return toggled
    own = module.train_dataloader

    def train_dataloader() -> Toggled:
        toggled.batches = own()
        return toggled

    module.train_dataloader = train_dataloader
    trainer.fit(module)
    return toggled


def _time_calls(owner: Any, names: tuple[str, ...], seconds: list[float]) -> None:
    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments, **keywords)
            seconds.append(time.perf_counter() - start)
            return result

        return call

    for name in names:
        setattr(owner, name, timed(getattr(owner, name)))


def _paired_row(what: str, step: float, added: list[float], reason: str) -> Row:
    share, error = median(added) / step, uncertainty(added) / step
    met = share <= TARGET if abs(share - TARGET) > error else None
    remark = {True: "", False: reason, None: UNRESOLVED}[met]
    return Row(
        f"whole plugin, {what}: added to the step, paired steps",
        f"{share:+.2%} ± {error:.2%}",
        f"<= {TARGET:.1%}",
        met,
        _joined(remark, f"step {step * 1e3:.4g} ms, added {median(added) * 1e3:.3g} ms, {len(added)} pairs"),
    )


def _inside_row(what: str, step: float, inside: float, reason: str) -> Row:
    met = inside <= TARGET * step
    return Row(
        f"whole plugin, {what}: time inside its own calls",
        f"{inside / step:.2%}",
        f"<= {TARGET:.1%}",
        met,
        _joined("" if met else reason, f"{inside * 1e3:.3g} ms a step in rollout_is_loss and the callback's hooks"),
    )


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
