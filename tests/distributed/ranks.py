"""Three processes that stay up for the whole test session: starting one costs more than most tests."""

import multiprocessing
import os
import tempfile
import time
import traceback
from datetime import timedelta

import torch

DEADLINE = 30
"""Seconds after which a call counts as hung."""
WORLD = 3


class Ranks:
    """Calls a function on the first ranks of a gloo world, and returns what each of them returned."""

    def __init__(self):
        self.pipes, self.processes = [], []

    def call(self, function, *args, world=WORLD):
        """``function(rank, group, *args)`` on ``world`` ranks, which form ``group``; ``None`` is all of them."""
        if not self.processes:
            self._start()
        for pipe in self.pipes[:world]:
            pipe.send((function, world, args))
        ends = time.monotonic() + DEADLINE
        answers = [self._answer(rank, ends) for rank in range(world)]
        failures = [f"rank {rank} failed:\n{failure}" for rank, (_, failure) in enumerate(answers) if failure]
        if failures:
            raise AssertionError("\n".join(failures))
        return [answer for answer, _ in answers]

    def stop(self):
        for process in self.processes:
            process.kill()
        self.pipes, self.processes = [], []

    def _answer(self, rank, ends):
        if not self.pipes[rank].poll(max(0.0, ends - time.monotonic())):
            self.stop()
            raise TimeoutError(f"rank {rank} did not answer within {DEADLINE} s")
        return self.pipes[rank].recv()

    def _start(self):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.distributed.shares"])  # the slow imports, once for all
        rendezvous = os.path.join(tempfile.mkdtemp(), "file")
        for rank in range(WORLD):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(rank, rendezvous, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        for pipe in self.pipes:  # starting up is not what a test's deadline is for
            assert pipe.poll(120), "a rank did not start"
            pipe.recv()


def serve(rank, rendezvous, pipe):
    os.environ["LOCAL_RANK"] = str(rank)  # to Lightning: this process is one of several already
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=DEADLINE),
    )
    groups = {world: torch.distributed.new_group(range(world)) for world in range(1, WORLD)} | {WORLD: None}
    pipe.send("ready")
    while True:
        function, world, args = pipe.recv()
        try:
            pipe.send((function(rank, groups[world], *args), None))
        except Exception:
            pipe.send((None, traceback.format_exc()))
