# SPDX-License-Identifier: Apache-2.0
"""What went wrong inside the client: counted and logged once, never raised into the job.

One thing that is raised inside the client is not its own: a signal of the job may arrive there, and
what its handler raises is meant for the job.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import CodeType, TracebackType
from typing import Any


class Failures:
    """The failures of this process."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def reset(self) -> None:
        """Begin anew: a forked child has had no failures of its own."""
        self.count = 0
        self.first = ""

    def add(self, error: BaseException) -> None:
        """Count a failure; the first one is kept and logged.

        What a signal handler of the job raised goes on instead.
        """
        try:
            pass_on(error)
        except BaseException:
            del error  # it holds this frame, and what this frame holds would live as long
            raise
        self.count += 1
        if self.count > 1:
            return
        try:
            self.first = type(error).__name__
            self.first = f"{type(error).__name__}: {error}"
            logging.getLogger("roofline.job").debug("not measured: %s", self.first)
        except Exception:  # no text, no stack left, a logger that raises: it is counted
            return


def pass_on(error: BaseException) -> None:
    """Raise again what a signal handler of the job raised; return for any other error."""
    try:
        theirs = _by_handler(error.__traceback__)
    except Exception:  # no stack left
        return
    if theirs:
        try:
            raise error
        finally:
            del error


def _by_handler(traceback: TracebackType | None) -> bool:
    # An error of our own code ends where it was caught, or in what that called.
    if traceback is None or traceback.tb_next is None:
        return False
    handlers = set(_handlers())
    return any(code in handlers for code in _codes(traceback))


def _codes(traceback: TracebackType | None) -> Iterator[CodeType]:
    while traceback is not None:
        yield traceback.tb_frame.f_code
        traceback = traceback.tb_next


def _handlers() -> Iterator[CodeType]:
    """Yield the code of the job's signal handlers that are written in Python."""
    signal: Any = sys.modules.get("signal")
    if not hasattr(signal, "getsignal"):
        return
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            while hasattr(handler, "func"):  # functools.partial
                handler = handler.func
            for function in (handler, type(handler).__call__):
                code = getattr(function, "__code__", None)
                if isinstance(code, CodeType):
                    yield code


FAILURES = Failures()
failed = FAILURES.add
