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
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data.dataloader as dataloader
from torch.utils.data import DataLoader, Dataset, TensorDataset

warnings.filterwarnings("ignore", "This DataLoader will create 4 worker processes")

PREFETCH = 2
ITEM = torch.zeros(2)


class Slow(Dataset[Any]):
    """Each sample takes its time, asleep or busy."""

    def __init__(self, samples: int, seconds: float, *, busy: bool = False) -> None:
        self.samples = samples
        self.seconds = seconds
        self.busy = busy

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        end = time.perf_counter() + self.seconds
        if not self.busy:
            time.sleep(self.seconds)
        while time.perf_counter() < end:
            pass
        return ITEM


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


def calculated(batches: int, workers: int, batch: float, body: float) -> float:
    """Return the wait for batches that take so long, with all that are prefetched ready at first.

    A worker makes its batches one after the other: the n-th is done one batch's time after the one
    before it of the same worker, and after its index was sent, which is when an earlier batch was
    taken.
    """
    if not workers:
        return batches * batch
    done = [0.0] * min(batches, PREFETCH * workers)
    now = waited = 0.0
    for number in range(batches):
        waited += max(0.0, done[number] - now)
        now = max(now, done[number])
        if len(done) < batches:
            done.append(max(now, done[len(done) - workers]) + batch)
        now += body
    return waited


def warm_up() -> None:
    """Do what only the first batch of a process takes: it is nobody's wait for data."""
    for _ in DataLoader(TensorDataset(torch.zeros(2, 2))):
        pass


def loop(name: str, loader: DataLoader[Any], expected: float | None, body: float) -> None:
    warm_up()
    clock = Clock()
    batches = iter(loader)
    if loader.num_workers:
        time.sleep(1.0)  # until everything that is prefetched is there
    begin = time.perf_counter()
    for _ in batches:
        time.sleep(body)
    whole = time.perf_counter() - begin
    print(json.dumps([os.getpid(), name, clock.seconds, expected, whole]), flush=True)


def sleeping(workers: int) -> None:
    batches, size, sample, body = 22 * max(1, workers), 2, 0.05, 0.002
    loader = DataLoader(
        Slow(batches * size, sample), size, num_workers=workers, collate_fn=torch.stack
    )
    loop(f"sleeping {workers}", loader, calculated(batches, workers, size * sample, body), body)


def burning(workers: int) -> None:
    loader = DataLoader(Slow(120, 0.005, busy=True), 4, num_workers=workers)
    loop(f"burning {workers}", loader, None, 0.002)


def fast(workers: int) -> None:
    data = TensorDataset(torch.zeros(120, 2))
    loop("fast", DataLoader(data, 8, num_workers=workers), None, 0.1)


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
