# SPDX-License-Identifier: Apache-2.0
"""What datasets and collate functions raise, in this process and in workers; with tracebacks."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
import torch.utils.data._utils as utils
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tests.training.differential.own import Own, Pairs, cases, unknown, watched

PIDS = re.compile(r"pid\(s\) [\d, ]+|pid \d+|repeated \d+ more times")
"""What differs between any two runs; and how deep a recursion is, of which our frame is one."""
utils.MP_STATUS_CHECK_INTERVAL = 0.3  # how long it takes to miss a worker that left


class Unlike(BaseException):
    """No Exception, like those of frameworks that want to stop a job."""


def raises(kind: type[BaseException]) -> None:
    if kind is RecursionError:
        raises(kind)
    if kind is OSError:
        os.stat("no/such/file")
    if kind is KeyError:
        {}["missing"]  # type: ignore[index]
    raise kind("sample 13 is broken") from None


class Mapped(Dataset[Any]):
    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        if index == 13:
            raises(self.kind)
        return Pairs()[index]


class Iterated(IterableDataset[Any]):
    def __init__(self, kind: type[BaseException]) -> None:
        self.mapped = Mapped(kind)

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        return iter(Iterating(self.mapped, iter(range(first, 24, stride))))


class Iterating:
    """An iterator, not a generator: these may end by raising StopIteration themselves."""

    def __init__(self, mapped: Mapped, indices: Iterator[int]) -> None:
        self.mapped, self.indices = mapped, indices

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.mapped[next(self.indices)]


def collating(kind: type[BaseException], samples: list[Any]) -> Any:
    if any(bool((x == Pairs()[13][0]).all()) for x, _ in samples):
        raises(kind)
    return utils.collate.default_collate(samples)


def learn(own: Own, source: str, kind: type[BaseException], workers: int) -> None:
    options: dict[str, Any] = {}
    data: Any = Pairs(24)
    if source == "map":
        data = Mapped(kind)
    elif source == "iterable":
        data = Iterated(kind)
    else:
        options["collate_fn"] = functools.partial(collating, kind)
    batches = watched(DataLoader(data, 4, num_workers=workers, **options))
    own.asks()
    for batch in batches:
        own.got(batch)
        own.learn(batch)
        own.asks()


def train(source: str, kind: type[BaseException], workers: int) -> None:
    own = Own()
    try:
        learn(own, source, kind, workers)
    except BaseException as error:
        # Twice: as it is seen where it is caught, and by whom it reaches at last.
        caught = error
        text = "".join(traceback.format_exception(error))
        print(PIDS.sub("...", text), end="", file=sys.stderr)
        print(type(error).__name__, PIDS.sub("...", str(error)).splitlines()[:1])
        own.expect(clock=False)
        if not PIDS.search(text):
            raise
        del caught
        sys.exit(3)
    own.expect(clock=False)


def lose(source: str, kind: type[BaseException]) -> NoReturn:
    """Train until the worker is gone, and leave.

    What of its batches arrives is chance. So is what is raised, and how often: a connection to the
    worker breaks before SIGCHLD arrives, whose handler by PyTorch raises once.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with contextlib.suppress(BaseException):
        try:
            learn(Own(), source, kind, 1)
        finally:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    unknown()
    print("a worker is lost", flush=True)
    os._exit(3)


KINDS: tuple[type[BaseException], ...] = (
    ValueError,
    KeyError,
    StopIteration,
    RuntimeError,
    OSError,
    MemoryError,
    RecursionError,
    KeyboardInterrupt,
    SystemExit,
    Unlike,
)
HARD = (KeyboardInterrupt, SystemExit, Unlike)
"""What ends a worker."""
TABLE: dict[str, Callable[[], None]] = {
    f"{kind.__name__}_{source}_{workers}": (
        functools.partial(lose, source, kind)
        if workers and kind in HARD
        else functools.partial(train, source, kind, workers)
    )
    for workers in (0, 1)  # the order in which two are ready is chance
    for source in ("map", "iterable", "collate")
    for kind in KINDS
}
cases(**TABLE)
