# SPDX-License-Identifier: Apache-2.0
"""Runs what takes long beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(function: Callable[[], T], name: str) -> T:
    """Return what a function returns, or raise what it raises, in a thread of that name.

    The end of the process does not wait for the thread, as it would for asyncio's own: a file
    system that does not answer must not keep it from stopping.
    """
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # it is raised again where it is awaited
            errors.append(error)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name=name, daemon=True).start()
    await done.wait()
    if errors:
        raise errors[0]
    return results[0]
