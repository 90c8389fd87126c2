"""What it adds to an optimizer step to log 35 scalars to TensorBoard, in every way that there is."""

from timing import Row, interleaved, median, ratio, uncertainty

# isort: split
import contextlib
import logging
import tempfile
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import lightning
import torch
from apart import apart
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.compat.proto.summary_pb2 import Summary

from lightning_rollout_is import RolloutISCallback, RolloutISMixin
from lightning_rollout_is.callbacks.curves import Curves

SCALARS = {f"mismatch/rollout_is_value_{number}": 0.5 + number for number in range(35)}
TENSORS = dict(zip(SCALARS, torch.tensor(list(SCALARS.values()), dtype=torch.float64), strict=True))
DEAR_ROUNDS, ROUNDS, CALLS = 200, 1500, 4000
SIZE, CHEAPER = 1.2, 20
HOW = "one step of each real Trainer in turn; median of the differences from one that logs nothing"


class Tiny(RolloutISMixin, lightning.LightningModule):
    """The smallest step that Lightning takes for one."""

    def __init__(self):
        super().__init__()
        self.configure_rollout_is({"rollout_is_threshold": 2.0})
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, batch_idx):
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class LogDict(Tiny):
    def training_step(self, batch, batch_idx):
        self.log_dict(SCALARS)
        return self.weight.sum()


class Records(Tiny):
    """Also weighs and records a small rollout, without which there is nothing to log."""

    def training_step(self, batch, batch_idx):
        return self.rollout_is_loss(self.weight.expand(2, 8), *batch).mean()


class LogMetrics(lightning.Callback):
    def on_train_batch_end(self, trainer, *_):
        for logger in trainer.loggers:
            logger.log_metrics(SCALARS, trainer.global_step)


class OneSummary(lightning.Callback):
    def on_train_batch_end(self, trainer, *_):
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in SCALARS.items()]
        for logger in trainer.loggers:
            logger.experiment.file_writer.add_summary(Summary(value=values), trainer.global_step)


class OurWrite(lightning.Callback):
    """As RolloutISCallback writes, into callback_metrics as well, which take the tensors that computing leaves."""

    def __init__(self):
        self.curves = Curves(flush_seconds=5.0)

    def on_train_batch_end(self, trainer, *_):
        self.curves.add(trainer, TENSORS, SCALARS, trainer.global_step)


RUNS = {
    "nothing": (Tiny, None),
    "log_dict": (LogDict, None),
    "log_metrics": (Tiny, LogMetrics),
    "one Summary": (Tiny, OneSummary),
    "our write": (Tiny, OurWrite),
    "recording": (Records, None),
    "recording and our callback": (Records, RolloutISCallback),
}


class Run:
    """A Trainer that takes one step at each call: its data loader hands out a batch whenever it is told to."""

    def __init__(self, module, callback, folder):
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._ended, self._error = False, None
        self._trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=1,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            log_every_n_steps=1,
            logger=TensorBoardLogger(folder, name="", version=""),
            callbacks=[callback()] if callback else [],
        )
        self._thread = threading.Thread(target=self._fit, args=(module(),), daemon=True)
        self._thread.start()
        self._until_ready()

    def _fit(self, module):
        try:
            self._trainer.fit(module, self)
        except BaseException as error:
            self._error = error
        self._done.release()

    def _until_ready(self):
        self._done.acquire()
        if self._error is not None:
            raise self._error

    def __iter__(self):
        tokens = -torch.rand(2, 8)
        batch = tokens, tokens - 0.1 * torch.rand(2, 8), torch.ones(2, 8)
        while True:
            self._done.release()
            self._go.acquire()
            if self._ended:
                return
            yield batch

    def step(self):
        """From one batch to the next."""
        self._go.release()
        self._until_ready()

    def end(self):
        self._ended = True
        self._go.release()
        self._thread.join()


def seconds() -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Of steps of real Trainers that take turns, by what they log; ``log_dict`` apart, since it takes so long."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        runs = {name: Run(module, callback, Path(folder, name)) for name, (module, callback) in RUNS.items()}
        for run in runs.values():
            ends.callback(run.end)
        steps = {name: run.step for name, run in runs.items()}
        log_dict = interleaved({name: steps[name] for name in ("nothing", "log_dict")}, DEAR_ROUNDS, warmup=20)
        steps.pop("log_dict")
        return interleaved(steps, ROUNDS, warmup=20), log_dict


def seconds_of_calls() -> dict[str, list[float]]:
    """Of the callbacks' hooks alone, without a Trainer's noise around them."""
    with tempfile.TemporaryDirectory() as folder:
        hooks = {name: RUNS[name][1]() for name in ("one Summary", "our write")}
        trainers = {
            name: SimpleNamespace(
                loggers=[TensorBoardLogger(folder, name="", version=name)], callback_metrics={}, global_step=1
            )
            for name in hooks
        }

        def call(name):
            return lambda: hooks[name].on_train_batch_end(trainers[name])

        found = interleaved({name: call(name) for name in hooks}, CALLS, warmup=20)
        for trainer in trainers.values():
            trainer.loggers[0].finalize("success")  # its writer would miss the folder
        return found


def rows() -> list[Row]:
    (found, dear), calls = apart(seconds, threads=1), apart(seconds_of_calls, threads=1)
    added = {"log_dict": _added(dear, "log_dict", "nothing")}
    added |= {name: _added(found, name, "nothing") for name in ("log_metrics", "one Summary", "our write")}
    whole = _added(found, "recording and our callback", "recording")
    summary, ours = median(added["one Summary"]), median(added["our write"])
    alone, cheaper = ratio(calls["our write"], calls["one Summary"]).middle, median(added["log_dict"]) / ours
    write, figures = "our write over one Summary of 35 scalars", {name: _figure(each) for name, each in added.items()}
    return [
        *(Row(f"{name} of 35 scalars, added to a step", figure, "-", None, HOW) for name, figure in figures.items()),
        Row(f"{write}, added to a step", f"{ours / summary:.2f}x", f"<= {SIZE}x", ours <= SIZE * summary, HOW),
        Row(
            f"{write}, the calls alone", f"{alone:.2f}x", f"<= {SIZE}x", alone <= SIZE, "median ratio of calls in turn"
        ),
        Row("log_dict over our write, added to a step", f"{cheaper:.0f}x", f">= {CHEAPER}x", cheaper >= CHEAPER, HOW),
        Row("our callback, added to a step that records", _figure(whole), "-", None, "copy, values and write"),
    ]


def _added(found: dict[str, list[float]], name: str, bare: str) -> list[float]:
    return [longer - shorter for longer, shorter in zip(found[name], found[bare], strict=True)]


def _figure(added: list[float]) -> str:
    return f"{median(added) * 1e6:.0f} us ± {uncertainty(added) * 1e6:.0f}"


def main():
    for row in rows():
        print(*row, sep=" | ")


if __name__ == "__main__":
    main()
