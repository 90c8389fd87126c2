"""Two gloo ranks: 30 scalars synchronised one by one, as torchmetrics and `self.log` do it, against one packed vector.

Times are those of rank 0, each round begun together. Collectives are counted at PyTorch's dispatcher, whoever calls.
"""

from timing import Row, interleaved, median

# isort: split
import logging
import multiprocessing
import os
import tempfile
import warnings
from collections import Counter
from typing import NamedTuple

import lightning
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics import SumMetric

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics

WORLD, STATES, LOGGED, STEPS, ROUNDS = 2, 30, 35, 3, 15
CONFIG = RolloutISConfig(rollout_is_threshold=2.0, rollout_is=True, rollout_is_mode="mask")


class Measured(NamedTuple):
    counts: dict[str, dict[str, int]]
    seconds: dict[str, list[float]]
    numbers: int
    """In the packed vector."""


class Collectives(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "c10d" in func.namespace:
            self.counts[func.name().partition("::")[2].partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def stock(metrics: list[SumMetric]):
    for metric in metrics:
        metric.update(1.0)
        metric.compute()


def packed(metrics: RolloutISMetrics, tokens: tuple[torch.Tensor, ...]):
    metrics.update(*tokens)
    metrics.compute()
    metrics.reset()


def metric_functions():
    tokens = torch.full((4, 8), -1.0), torch.full((4, 8), -1.1), torch.ones(4, 8, dtype=torch.bool)
    many, one = [SumMetric() for _ in range(STATES)], RolloutISMetrics(CONFIG)
    gathered = [torch.empty_like(one.packed) for _ in range(WORLD)]
    functions = {
        "torchmetrics": lambda: stock(many),
        "packed": lambda: packed(one, tokens),
        "all_gather": lambda: torch.distributed.all_gather(gathered, one.packed),
    }
    return functions, one.packed.numel()


class Logging(lightning.LightningModule):
    """Does in its steps what it is told, as a user's `training_step` would."""

    def __init__(self, found: Measured):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.found = found
        self.values = {f"value_{i}": torch.tensor(float(i)) for i in range(LOGGED)}

    def training_step(self, batch, batch_idx):
        if batch_idx == STEPS - 1:  # the first steps set up what logging keeps
            one = {"log_dict": lambda: self.log_dict(self.values, sync_dist=True)}
            self.found.counts.update({name: counted(function) for name, function in one.items()})
            functions, _ = metric_functions()
            self.found.seconds.update(race({**one, "packed": functions["packed"]}))
        else:
            self.log_dict(self.values, sync_dist=True)
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def counted(function) -> dict[str, int]:
    with Collectives() as collectives:
        function()
    return dict(collectives.counts)


def race(functions) -> dict[str, list[float]]:
    return interleaved(functions, ROUNDS, before=torch.distributed.barrier)


def measure() -> tuple[Measured, Measured]:
    """On one rank."""
    functions, numbers = metric_functions()
    alone = Measured({name: counted(function) for name, function in functions.items()}, race(functions), numbers)
    logged = Measured({}, {}, numbers)
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=WORLD, strategy="ddp", max_epochs=1, enable_model_summary=False, **settings
    )
    trainer.fit(Logging(logged), range(STEPS))
    return alone, logged


def serve(rank: int, rendezvous: str, answers):
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    os.environ["LOCAL_RANK"] = str(rank)  # to Lightning: this process is one of several already
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    found = measure()
    if rank == 0:
        answers.put(found)
    torch.distributed.barrier()


def on_ranks() -> tuple[Measured, Measured]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        answers = context.Queue()
        ranks = [context.Process(target=serve, args=(rank, f"{folder}/file", answers)) for rank in range(WORLD)]
        for rank in ranks:
            rank.start()
        found = answers.get(timeout=120)
        for rank in ranks:
            rank.join()
    return found


def rows() -> list[Row]:
    alone, logged = on_ranks()
    ours, what = sum(alone.counts["packed"].values()), f"{alone.numbers} float64 numbers, {alone.numbers * 8} bytes"
    return [
        Row("collectives of the packed vector", str(ours), "1", ours == 1, what),
        Row(f"collectives of {STATES} scalar metrics", *_count(alone.counts["torchmetrics"])),
        Row(f"collectives of log_dict(sync_dist=True), {LOGGED} scalars", *_count(logged.counts["log_dict"])),
        _faster(f"{STATES} scalar metrics, update and compute", "torchmetrics", alone),
        _faster(f"log_dict(sync_dist=True), {LOGGED} scalars", "log_dict", logged),
        _part_row(alone),
    ]


def _count(counts: dict[str, int]) -> tuple[str, str, None, str]:
    return str(sum(counts.values())), "-", None, ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _faster(what: str, name: str, found: Measured) -> Row:
    theirs, ours = median(found.seconds[name]), median(found.seconds["packed"])
    note = f"{theirs * 1e3:.2f} against {ours * 1e3:.2f} ms, medians of {ROUNDS} rounds on {WORLD} gloo ranks"
    return Row(f"{what}: times what the packed vector takes", f"{theirs / ours:.1f}x", "-", None, note)


def _part_row(found: Measured) -> Row:
    seconds = median(found.seconds["all_gather"])
    return Row("all_gather of the packed vector alone", f"{seconds * 1e3:.2f} ms", "-", None, f"{WORLD} gloo ranks")


def main():
    for row in rows():
        print(*row, sep=" | ")


if __name__ == "__main__":
    main()
