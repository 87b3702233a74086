# SPDX-License-Identifier: Apache-2.0
"""Runs blocking functions beside the event loop, in a fixed number of threads."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from exporter.errors import ExporterError

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A pool whose threads start at once, so that a node without free pids can still serve.

    They are daemon threads, unlike asyncio's own: a file system that hangs does not delay the end.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        """Start so many threads of that name, or raise ExporterError."""
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        try:
            for _ in range(count):
                threading.Thread(target=_run, args=(self._work,), name=name, daemon=True).start()
                weakref.finalize(self, self._work.put, None)
        except RuntimeError as error:
            raise ExporterError(f"the thread {name} cannot be started: {error}") from error

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function returns, or raise what it raises, in one of the threads."""
        done: Future[T] = Future()
        self._work.put((done, partial(function, *args, **kwargs)))
        return await asyncio.wrap_future(done)

    def aside(self, function: Callable[P, T]) -> Callable[P, object]:
        """Return the function as one to be awaited, which has it run in a thread."""

        @wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.run(function, *args, **kwargs)

        return run


def _run(work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (each := work.get()) is not None:
        done, function = each
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(function())
            except BaseException as error:  # it is raised again where it is awaited
                done.set_exception(error)
        del each, done, function  # one of them may be the last that keeps the queue's owner
