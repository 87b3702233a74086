# SPDX-License-Identifier: Apache-2.0
"""Trains in greenlets, which switch stacks in the middle of a dataset."""

from __future__ import annotations

from typing import Any

import gevent
import gevent.pool
import gevent.queue
from torch.utils.data import DataLoader

from tests.training.differential.own import Own, Pairs, cases, watched


class Switching(Pairs):
    """Gives way to other greenlets while it makes a sample."""

    def __getitem__(self, index: int) -> Any:
        gevent.sleep(0.002)
        return super().__getitem__(index)


def loader(samples: int = 40) -> Any:
    return watched(DataLoader(Switching(samples), 4))


def in_one() -> None:
    def trained() -> None:
        own = Own(0.01)
        own.train(loader())
        own.expect()

    gevent.spawn(trained).get()


def called_by_greenlets() -> None:
    """``next`` itself is what each greenlet calls: there is no frame of the job's below it."""
    own, batches = Own(), iter(loader())
    for _ in range(10):
        own.learn(gevent.spawn(next, batches).get())
    own.expect(clock=False, counted=False)


def read_ahead() -> None:
    own, batches = Own(), gevent.queue.Queue(2)

    def fill() -> None:
        for batch in loader():
            batches.put(batch)
        batches.put(None)

    gevent.spawn(fill)
    for batch in iter(batches.get, None):
        own.learn(batch)
    own.expect(clock=False, counted=False)


def killed_in_next() -> None:
    own, batches = Own(), iter(loader())
    waiting = gevent.spawn(next, batches)
    gevent.sleep(0.003)
    waiting.kill()
    for batch in batches:
        own.learn(batch)
    own.expect(clock=False, counted=False)


def timed_out() -> None:
    own, batches = Own(), iter(loader())
    for _ in range(3):
        with gevent.Timeout(0.003, False):
            next(batches)
            print("in time")
    for batch in batches:
        own.learn(batch)
    own.expect(clock=False, counted=False)


def patched() -> None:
    """The standard library's threads and sleeps are gevent's."""
    import gevent.monkey

    gevent.monkey.patch_all()
    in_one()


if __name__ == "__main__":
    cases()
