# SPDX-License-Identifier: Apache-2.0
"""What the interpreter lets a job look at: lifetimes, recursion, tracing, warnings, coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.training.differential.own import Own, Pairs, cases, watched


def loader(samples: int = 40, seconds: float = 0.001, **options: Any) -> Any:
    return watched(DataLoader(Pairs(samples, seconds), 4, **options))


def iterators_are_freed() -> None:
    """At once when the loop is over, by counting references alone."""
    gc.disable()
    own = Own()
    seen: list[weakref.ref[Any]] = []
    for number in (0, 1):
        batches = iter(DataLoader(Pairs(40), 4, num_workers=number))
        seen.append(weakref.ref(batches))
        for batch in batches:
            own.learn(batch)
        print(seen[-1]() is None, end=" ")
        del batches
        print(seen[-1]() is None)
    batches = iter(DataLoader(Pairs(40), 4))
    seen.append(weakref.ref(batches))
    own.learn(next(batches))
    del batches
    print([one() is None for one in seen])
    own.expect(counted=False, clock=False)


def batches_are_freed() -> None:
    """No batch is held after the loop has let go of it: it may be as large as memory is."""
    gc.disable()
    own = Own()
    seen: list[weakref.ref[Any]] = []
    for batch in loader():
        print([one() is None for one in seen[-1:]], end=" ")
        own.learn(batch)
        seen.append(weakref.ref(batch[0]))
        del batch
        print(seen[-1]() is None)
    own.expect(counted=False, clock=False)


def loaders_and_models_are_freed() -> None:
    gc.disable()
    own, one = Own(), DataLoader(Pairs(40), 4)
    for batch in one:
        own.learn(batch)
    result, steps = own.result(), own.steps
    seen = [weakref.ref(each) for each in (one, own.model, own.optimizer, batch[0])]
    del one, own, batch
    print([each() is None for each in seen], result)
    last = Own()
    last.steps = steps
    last.expect(counted=False, clock=False)


def exceptions_hold_no_more() -> None:
    """What a failed ``next()`` held is free when its exception is."""
    gc.disable()

    class Failing(Pairs):
        def __getitem__(self, index: int) -> Any:
            if index == 13:
                raise ValueError("sample 13")
            return super().__getitem__(index)

    own = Own()
    batches = iter(DataLoader(Failing(40), 4))
    seen = weakref.ref(batches)
    with contextlib.suppress(ValueError):
        while True:
            own.learn(next(batches))
    del batches
    print(seen() is None)
    own.expect(counted=False, clock=False)


def dropped_midway() -> None:
    own = Own()
    batches = iter(loader(num_workers=1))
    own.learn(own.ask(next, batches))
    del batches
    gc.collect()
    print(torch.multiprocessing.active_children())
    own.expect(clock=False)


def deep(depth: int, own: Own, batches: Any) -> None:
    if depth:
        deep(depth - 1, own, batches)
    else:
        own.learn(next(batches))


def deep_in_recursion() -> None:
    """``next()`` 850 calls deep, with a limit of 1000."""
    own = Own()
    batches = iter(loader())
    for _ in range(10):
        deep(850, own, batches)
    own.expect(clock=False, counted=False)


def at_the_limit() -> None:
    """Wherever the limit is met, in ours too, the loop can go on: it raises, and loses no batch."""
    own, batches = Own(), iter(DataLoader(Pairs(64), 1))
    depth = len(inspect.stack())
    for limit in range(depth + 1, depth + 40):
        old = sys.getrecursionlimit()
        try:
            sys.setrecursionlimit(limit)
            next(batches)
        except RecursionError:
            pass
        finally:
            sys.setrecursionlimit(old)
    for batch in DataLoader(Pairs(40), 4):
        own.learn(batch)
    own.expect(clock=False, counted=False)


def traced_by_one_that_raises() -> None:
    """A tracer that fails is switched off by Python; no batch is lost."""
    own = Own()

    def tracer(frame: Any, event: str, argument: Any) -> None:
        if frame.f_code.co_name == "__next__":
            raise ValueError("the tracer")

    batches = iter(loader())
    for _ in range(2):
        sys.settrace(tracer)
        try:
            next(batches)
        except ValueError as error:
            print(error)
    for batch in batches:
        own.learn(batch)
    own.expect(clock=False, counted=False)


def profiled_by_torch() -> None:
    own = Own()
    with torch.autograd.profiler.profile(use_kineto=False) as profile:
        own.train(loader())
    names = {one.key: one.count for one in profile.key_averages()}
    print(sorted((name, count) for name, count in names.items() if "DataLoader" in name))
    print(sorted((name, count) for name, count in names.items() if "Optimizer" in name))
    own.expect(clock=False)


class Longer(IterableDataset[Any]):
    """Says that it has fewer samples than it has, which PyTorch warns of."""

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "Longer()"

    def __iter__(self) -> Iterator[Any]:
        return (Pairs()[index] for index in range(12))


def warnings_are_errors() -> None:
    own, one = Own(), watched(DataLoader(Longer(), 4))
    print(len(one))
    warnings.simplefilter("error")
    try:
        own.train(one)
    except UserWarning:
        own.expect(clock=False)
        raise


def in_a_coroutine() -> None:
    own = Own(0.02)

    async def train() -> None:
        for batch in own.each(loader(seconds=0.006)):
            own.learn(batch)
            await asyncio.sleep(0)

    asyncio.run(train())
    own.expect()


def in_two_coroutines() -> None:
    """Two loops take turns in one thread; each iterator is its own."""
    own = Own()

    async def train(samples: int) -> None:
        for batch in loader(samples):
            own.learn(batch)
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(train(24), train(40))

    asyncio.run(both())
    own.steps = None  # it is not known which of them fall into one loop
    own.expect(counted=False, clock=False)


def asked_by_asyncio() -> None:
    """The event loop's thread pool asks for the batches."""
    own = Own()

    async def train() -> None:
        batches = iter(loader())
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            own.learn(batch)

    asyncio.run(train())
    own.expect(counted=False, clock=False, degraded=["helper_thread"], phases=[])


def random_numbers_are_its_own() -> None:
    """The client draws none from the job's generators, nor seeds any."""
    import random

    random.seed(3)
    own = Own()
    for batch in own.each(loader(shuffle=True)):
        own.learn(batch)
        random.random()
    print(random.random(), torch.rand(1).item(), torch.initial_seed())
    own.expect(clock=False)


def modules_are_its_own() -> None:
    """What a job sees in ``sys.modules`` and on its path by usual names is its own."""
    own = Own()
    own.train(loader())
    print([name for name in sys.modules if name.split(".")[0] in ("exporter", "sitecustomize")])
    print([one.name for one in threading.enumerate()], gc.isenabled(), sys.gettrace())
    own.expect(clock=False)


cases()
