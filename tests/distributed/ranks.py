"""Two processes that stay up for the whole test session: starting one costs more than most tests."""

import multiprocessing
import traceback
from datetime import timedelta

import torch

DEADLINE = 60
"""Seconds after which a call counts as hung."""


class Ranks:
    """Calls a function on every rank of a gloo group, and returns what each rank returned."""

    def __init__(self, world_size, rendezvous):
        context = multiprocessing.get_context("spawn")
        self.world_size = world_size
        self.pipes, self.processes = [], []
        for rank in range(world_size):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(rank, world_size, rendezvous, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def call(self, function, *args):
        for pipe in self.pipes:
            pipe.send((function, args))
        return [self._answer(rank) for rank in range(self.world_size)]

    def _answer(self, rank):
        if not self.pipes[rank].poll(DEADLINE):
            self.stop()
            raise TimeoutError(f"rank {rank} did not answer within {DEADLINE} s")
        answer, failure = self.pipes[rank].recv()
        if failure:
            raise AssertionError(f"rank {rank} failed:\n{failure}")
        return answer

    def stop(self):
        for process in self.processes:
            process.kill()


def serve(rank, world_size, rendezvous, pipe):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=DEADLINE),
    )
    while True:
        function, args = pipe.recv()
        try:
            pipe.send((function(rank, *args), None))
        except Exception:
            pipe.send((None, traceback.format_exc()))
