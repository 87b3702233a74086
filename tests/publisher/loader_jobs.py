# SPDX-License-Identifier: Apache-2.0
"""Training jobs on GPUs that are only said to be busy: real DataLoaders, forked from one process.

``python -m tests.publisher.loader_jobs FOLDER SECONDS`` starts `JOBS`. Each writes two files:
NAME.pid, and NAME with a line for each ``gpu`` interval (written at its begin) and ``wait``
interval, in Unix seconds.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

FILE_BYTES = 8 * 2**20
BLOCK = 4096


def sleep(seconds: float, _: int) -> None:
    """Load a batch as from a slow network."""
    time.sleep(seconds)


def burn(seconds: float, _: int) -> None:
    """Load a batch by computing."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def read(seconds: float, number: int) -> None:
    """Load a batch from a file, past the page cache."""
    path = Path(sys.argv[1]) / "samples"
    buffer = mmap.mmap(-1, BLOCK)
    opened = os.open(path, os.O_RDONLY | os.O_DIRECT)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            number = number * 48271 % 2147483647
            os.preadv(opened, [buffer], number % (FILE_BYTES // BLOCK) * BLOCK)
    finally:
        os.close(opened)


def sometimes(seconds: float, number: int) -> None:
    """Load one batch in four slowly."""
    time.sleep(seconds if number % 4 == 0 else 0.01)


class Data:
    """A data set of numbers that take time."""

    def __init__(self, load: Callable[[float, int], None], seconds: float) -> None:
        self._load, self._seconds = load, seconds

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, number: int) -> int:
        self._load(self._seconds, number + 1)
        return number


class Loop:
    """What every job does: waits for a batch, then has the GPU work."""

    def __init__(self, log: TextIO, batches: Iterator[Any]) -> None:
        self._log, self._batches = log, batches

    def wait(self) -> None:
        """Take the next batch."""
        began = time.time()
        next(self._batches)
        self.write("wait", began, time.time())

    def work(self, seconds: float, *, ahead: float = 0.0, spin: bool = False) -> None:
        """Launch so much work; wait until all but the last `ahead` seconds are done."""
        began = time.time()
        self.write("gpu", began, began + seconds)
        if spin:
            while time.time() < began + seconds - ahead:
                pass
        else:
            threading.Event().wait(seconds - ahead)

    def write(self, what: str, began: float, ended: float) -> None:
        self._log.write(f"{what} {began:.6f} {ended:.6f}\n")
        self._log.flush()


def train(seconds: float, **how: Any) -> Callable[[Loop], None]:
    """Return a step of a training loop."""

    def step(loop: Loop) -> None:
        loop.wait()
        loop.work(seconds, **how)

    return step


def in_turns(loop: Loop) -> None:
    """Train on a slow loader for a while, then on batches that are kept, for a while."""
    for _ in range(8):
        loop.wait()
        loop.work(0.03)
    for _ in range(15):
        loop.work(0.2)


def evaluate(loop: Loop) -> None:
    """Train for a while, then compute on the CPU for longer; the loader is ahead."""
    for _ in range(20):
        loop.wait()
        loop.work(0.05)
    burn(6.0, 0)


def wait_for_a_rank(loop: Loop) -> None:
    """Train for a while, then wait for another rank in a collective, as gloo does on the CPU."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        store = f"file://{sys.argv[1]}/store"
        if os.fork() == 0:
            dist.init_process_group("gloo", store, rank=1, world_size=2)
            while True:
                time.sleep(6.0)
                dist.all_reduce(torch.zeros(1))
        dist.init_process_group("gloo", store, rank=0, world_size=2)
    for _ in range(20):
        loop.wait()
        loop.work(0.05)
    dist.all_reduce(torch.zeros(1))


JOBS: dict[str, tuple[Callable[[float, int], None], float, int, Callable[[Loop], None]]] = {
    "sleep1": (sleep, 0.3, 1, train(0.1)),
    "sleep2": (sleep, 0.5, 2, train(0.08, spin=True)),
    "sleep4": (sleep, 1.4, 4, train(0.25, ahead=0.1)),
    "ahead": (burn, 0.05, 1, train(0.15)),
    "burn2": (burn, 0.25, 2, train(0.06)),
    "read2": (read, 0.3, 2, train(0.1, ahead=0.05)),
    "read4": (read, 0.3, 4, train(0.02)),
    "sometimes": (sometimes, 1.2, 4, train(0.1)),
    "in_turns": (sleep, 0.4, 1, in_turns),
    "evaluation": (sleep, 0.01, 2, evaluate),
    "collective": (sleep, 0.01, 2, wait_for_a_rank),
}
"""By name: how a batch is loaded, for how long, by how many workers, and the loop."""
CLAIMLESS = ("ahead", "evaluation", "collective")


def run(name: str, folder: Path, seconds: float) -> None:
    """Be one of the jobs."""
    from torch.utils.data import DataLoader

    load, load_seconds, workers, step = JOBS[name]
    (folder / f"{name}.pid").write_text(str(os.getpid()))
    end = time.monotonic() + seconds
    with (folder / name).open("w") as log:
        data: Any = Data(load, load_seconds)
        batches = iter(DataLoader(data, batch_size=1, num_workers=workers))
        loop = Loop(log, batches)
        while time.monotonic() < end:
            step(loop)


def main() -> None:
    """Start the jobs, and wait for them."""
    import torch

    torch.set_num_threads(1)
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    (folder / "samples").write_bytes(os.urandom(FILE_BYTES))
    started = []
    for name in JOBS:
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            run(name, folder, seconds)
            os._exit(0)
        started.append(pid)
    for pid in started:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
