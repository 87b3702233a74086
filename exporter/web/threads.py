# SPDX-License-Identifier: Apache-2.0
"""Runs what takes long beside the event loop, in threads that are there from the start."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from exporter.errors import ExporterError

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Threads that wait for work: serving needs no new one where the node has no more pids.

    The end of the process does not wait for them, as it would for asyncio's own: a file system
    that does not answer must not keep it from stopping.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        """Start so many threads of that name.

        Raises:
            ExporterError: they cannot be started.
        """
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        weakref.finalize(self, _end, self._work, count)
        try:
            for _ in range(count):
                threading.Thread(target=_run, args=(self._work,), name=name, daemon=True).start()
        except RuntimeError as error:
            raise ExporterError(f"the thread {name} cannot be started: {error}") from error

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function returns, or raise what it raises, in one of the threads."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(function(*args, **kwargs))
            except BaseException as error:  # it is raised again where it is awaited
                errors.append(error)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(done.set)

        self._work.put(work)
        await done.wait()
        if errors:
            raise errors[0]
        return results[0]

    def aside(self, function: Callable[P, T]) -> Callable[P, object]:
        """Return the function as one to be awaited, which has it run in a thread."""

        @wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.run(function, *args, **kwargs)

        return run


def _run(work: SimpleQueue[Callable[[], None] | None]) -> None:
    while (each := work.get()) is not None:
        each()
        del each  # what it holds may be the owner of the queue


def _end(work: SimpleQueue[Callable[[], None] | None], count: int) -> None:
    for _ in range(count):
        work.put(None)
