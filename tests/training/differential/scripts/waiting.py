# SPDX-License-Identifier: Apache-2.0
"""Waits for loaders of known speed, with a clock of its own around the very same ``next()``.

Every loader is used in a process of its own, which therefore reports for itself alone; those that
sleep do so at the same time. Prints one line for each: pid, loader, seconds waited by the clock, by
calculation, and in the whole loop; before them its own pid.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils.data.dataloader as dataloader
from torch.utils.data import DataLoader, Dataset, TensorDataset

warnings.filterwarnings("ignore", "This DataLoader will create 4 worker processes")

PREFETCH = 2


class Slow(Dataset[Any]):
    """Each sample takes its time, asleep or busy, and says how long it really took."""

    def __init__(self, samples: int, seconds: float, *, busy: bool = False) -> None:
        self.samples = samples
        self.seconds = seconds
        self.busy = busy

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        begin = time.perf_counter()
        if not self.busy:
            time.sleep(self.seconds)
        while time.perf_counter() < begin + self.seconds:
            pass
        return torch.tensor(time.perf_counter() - begin, dtype=torch.float64)


class Clock:
    """Put around the ``__next__`` that every data loader's iterator inherits."""

    def __init__(self) -> None:
        self.seconds = 0.0
        inner: Callable[[Any], Any] = dataloader._BaseDataLoaderIter.__next__

        def timed(iterator: Any) -> Any:
            begin = time.perf_counter()
            try:
                return inner(iterator)
            finally:
                self.seconds += time.perf_counter() - begin

        dataloader._BaseDataLoaderIter.__next__ = timed


def calculated(workers: int, batches: Sequence[float], bodies: Sequence[float]) -> float:
    """Return the wait for batches that take so long, with all that are prefetched ready at first.

    A worker makes its batches one after the other: the n-th is done its time after the one before
    it of the same worker, and after its index was sent, which is when an earlier batch was taken.
    """
    if not workers:
        return sum(batches)
    done = [0.0] * min(len(batches), PREFETCH * workers)
    now = waited = 0.0
    for number, body in enumerate(bodies):
        waited += max(0.0, done[number] - now)
        now = max(now, done[number])
        if len(done) < len(batches):
            done.append(max(now, done[len(done) - workers]) + batches[len(done)])
        now += body
    return waited


def warm_up() -> None:
    """Do what only the first batch of a process takes: it is nobody's wait for data."""
    for _ in DataLoader(TensorDataset(torch.zeros(2, 2))):
        pass


def loop(name: str, loader: DataLoader[Any], body: float, *, sleeps: bool = False) -> None:
    warm_up()
    clock = Clock()
    begin = time.perf_counter()
    batches = iter(loader)
    started = time.perf_counter() - begin  # workers: that is waited for as well
    if loader.num_workers:
        time.sleep(1.0)  # until everything that is prefetched is there
    took, bodies = [], []
    begin = time.perf_counter()
    for batch in batches:
        arrived = time.perf_counter()
        time.sleep(body)
        took.append(float(sum(batch)))
        bodies.append(time.perf_counter() - arrived)
    whole = time.perf_counter() - begin + started
    expected = started + calculated(loader.num_workers, took, bodies) if sleeps else None
    waited = started + clock.seconds
    # In one call: `print` writes the end of a line by itself, and others write as well.
    sys.stdout.write(json.dumps([os.getpid(), name, waited, expected, whole]) + "\n")


def sleeping(workers: int) -> None:
    data = Slow(24 * max(1, workers), 0.1)
    loop(f"sleeping {workers}", DataLoader(data, 2, num_workers=workers), 0.002, sleeps=True)


def burning(workers: int) -> None:
    loader = DataLoader(Slow(120, 0.005, busy=True), 4, num_workers=workers)
    loop(f"burning {workers}", loader, 0.002)


def fast(workers: int) -> None:
    data = torch.zeros(80)
    loop("fast", DataLoader(data, 8, num_workers=workers), 0.2)


def finish(processes: list[Any]) -> None:
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit(f"{process.name} failed")


if __name__ == "__main__":
    cores = len(os.sched_getaffinity(0))
    warm_up()
    print(os.getpid(), flush=True)
    new = multiprocessing.get_context("fork").Process
    finish([new(target=sleeping, args=(workers,)) for workers in (0, 1, 2, 4)])
    for workers in (0, 1, 2):
        if workers < cores:
            finish([new(target=burning, args=(workers,))])
    finish([new(target=fast, args=(0,))])
