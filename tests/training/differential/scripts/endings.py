# SPDX-License-Identifier: Apache-2.0
"""Ways in which jobs end, signals that come in between, and what is called at exit."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader

from tests.training.differential.own import WATCH, Own, Pairs, cases, unknown, watched

KEPT: list[Any] = []


def loader(samples: int = 40, seconds: float = 0.0, **options: Any) -> Any:
    return watched(DataLoader(Pairs(samples, seconds), 4, **options))


def exits_in_the_loop() -> None:
    own = Own()
    for batch in own.each(loader()):
        own.learn(batch)
        if own.steps == 5:
            own.expect(clock=False)
            sys.exit(7)


def exits_hard_in_the_loop() -> None:
    """Without any last word: totals up to the last second may be lost, nothing else."""
    own = Own()
    for batch in own.each(loader()):
        own.learn(batch)
        if own.steps == 5:
            print(own.result(), flush=True)
            unknown()
            os._exit(9)


def raises_in_the_body() -> None:
    own = Own()
    for batch in own.each(loader()):
        own.learn(batch)
        own.expect(clock=False)
        raise ValueError("the body")


def raises_during_another() -> None:
    """Chained exceptions, each with its own traceback."""
    own = Own()
    try:
        for _ in loader(collate_fn=lambda _: {}["missing"]):  # type: ignore[index]
            pass
    except KeyError as error:
        unknown()
        raise RuntimeError("no data") from error
    own.expect()


def interrupted_in_the_body() -> None:
    own = Own()
    for batch in own.each(loader()):
        own.learn(batch)
        own.expect(clock=False)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


def interrupted_in_next() -> None:
    class Interrupting(Pairs):
        def __getitem__(self, index: int) -> Any:
            if index == 13:
                os.kill(os.getpid(), signal.SIGINT)
            return super().__getitem__(index)

    own = Own()
    try:
        own.train(watched(DataLoader(Interrupting(40), 4)))
    except KeyboardInterrupt:
        traceback.print_exc()
        own.expect(clock=False)
        raise


def terminated_with_a_handler() -> None:
    """As schedulers ask for a checkpoint before they end a job."""
    own = Own()
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(own.steps))
    for batch in own.each(loader()):
        own.learn(batch)
        if own.steps == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        if asked:
            own.save("last.pt")
            break
    print(asked)
    own.expect(clock=False)


def alarmed(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError("no batch")


def timed_out_in_next() -> None:
    """The handler raises in the middle of ``next()``; the loop asks again."""

    class Hanging(Pairs):
        def __getitem__(self, index: int) -> Any:
            if index == 13:
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                time.sleep(10)
            return super().__getitem__(index)

    own = Own(0.01)
    batches = own.iterate(watched(DataLoader(Hanging(40, 0.005), 4)))
    signal.signal(signal.SIGALRM, alarmed)
    for _ in range(10):
        try:
            own.learn(own.ask(next, batches))
        except TimeoutError:
            traceback.print_exc()
    own.expect(counted=False)


def timed_out_while_saving() -> None:
    class Slow:
        def __reduce__(self) -> Any:
            time.sleep(0.5)
            return int, ()

    own = Own(0.01)
    signal.signal(signal.SIGALRM, alarmed)
    for batch in own.each(loader()):
        own.learn(batch)
        if own.steps == 5:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            began = time.perf_counter()
            try:
                torch.save(Slow(), "slow.pt")
            except TimeoutError:
                traceback.print_exc()
            own.saved += time.perf_counter() - began
    own.expect()


def ticking_and_training() -> None:
    """A handler that takes batches itself: a loop within ``next()`` of another."""
    own = Own()

    def handler(*_: Any) -> None:
        print(sum(len(x) for x, _ in DataLoader(Pairs(12), 4)))

    signal.signal(signal.SIGUSR1, handler)

    class Signalling(Pairs):
        def __getitem__(self, index: int) -> Any:
            if index == 13:
                os.kill(os.getpid(), signal.SIGUSR1)
            return super().__getitem__(index)

    for batch in watched(DataLoader(Signalling(40), 4)):
        own.learn(batch)
    own.expect(counted=False, clock=False)


def fails_at_exit() -> None:
    own = Own()
    own.train(loader())
    own.expect(clock=False)
    atexit.register(lambda: 1 / 0)


def with_hooks_for_exceptions() -> None:
    own = Own()
    sys.excepthook = lambda kind, error, trace: print("caught", kind.__name__, error)
    threading.excepthook = lambda found: print("thread", found.exc_type.__name__)

    def train() -> None:
        for _ in loader():
            raise ValueError("in a thread")

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    own.train(loader())
    own.steps = None if WATCH else own.steps  # the other thread trains as well then
    own.expect(counted=False, clock=False)
    raise ValueError("in the main one")


def with_open_loops() -> None:
    """The process ends with iterators that were never used up, workers among them."""
    own = Own()
    KEPT.extend(iter(loader(num_workers=number)) for number in (0, 1))
    for batches in KEPT:
        own.learn(own.ask(next, batches))
    own.expect(clock=False)


def stdout_is_gone() -> None:
    own = Own()
    own.train(loader())
    own.expect(clock=False)
    os.close(1)
    os.close(2)


def with_an_empty_environment() -> None:
    """Where to report to is no longer known then."""
    own = Own()
    os.environ.clear()
    own.train(loader())
    print(own.result())
    unknown()


def descriptors_all_closed() -> None:
    """A job that closes every descriptor that it does not know."""
    own = Own()
    for batch in own.each(loader()):
        own.learn(batch)
        if own.steps == 5:
            os.closerange(3, 256)
            one, two = os.pipe()
            print(one, two)
    print(sorted(map(int, os.listdir("/proc/self/fd"))))
    own.expect(clock=False)


cases()
