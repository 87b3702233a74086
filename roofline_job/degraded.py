# SPDX-License-Identifier: Apache-2.0
"""Parts of the client that are switched off because something was unexpected, and why.

An unexpected error switches a part off for the rest of the process: the job goes on with the
original function, one line is written to standard error, and the next report names the reason.
Only what the job's own signal handler raised while the client ran is raised into the job.
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType, MethodType
from typing import Any

from .identity import parent
from .switches import ENABLED, say

REASONS: dict[str, str] = {
    "loaders": "loops over data loaders are not measured",
    "loader_details": "ready batches are not known",
    "optimizers": "optimizer steps are not seen",
    "checkpoints": "saving is not measured, or only in part",
    "autocast": "the precision is not known",
    "captures": "CUDA graph captures cannot be seen, so no CUDA events are used",
    "cuda_events": "the exposed stall is not measured",
    "helper_thread": "the data loader is read in a helper thread, "
    "so the wait of the training loop is not measured; put watch() around what that loop reads",
    "flops": "FLOPs are not counted",
    "stated": "something that the script states is not a number that can be counted",
    "client": "this process is no longer measured, or only in part",
}
"""What each reason means for the numbers; the names are those of the protocol."""

NO_FAILURES = frozenset({"helper_thread", "flops"})
"""Reasons that describe the job, not a failure of the client."""

FOUND: dict[str, str] = {}
"""The reasons in this process, each with its details."""

_unlogged: list[str] = []


def degrade(reason: str, found: str) -> None:
    """Note that a part of the client is off; log it once."""
    if reason in FOUND:
        return
    note(reason, found)
    _unlogged.append(f"{REASONS[reason]} ({found})")
    if parent() is None:
        log_found()


def note(reason: str, found: str) -> None:
    """Let the next report name a reason, without a line in the job's output: nothing failed."""
    FOUND.setdefault(reason, found)


def log_found() -> None:
    """Log the reasons that were not logged yet.

    A child of multiprocessing waits until it reports: most only load data, and never do.
    """
    while _unlogged:
        say(_unlogged.pop(0))


class Part:
    """A part of the client, which is on until it fails; never where the job switches us off."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.on = ENABLED

    def miss(self, found: str) -> None:
        """Switch it off: something that it needs is missing."""
        self.on = False
        degrade(self.reason, found)

    def fail(self, error: Exception) -> None:
        """Switch it off after a failure of its own; call this where the failure is handled.

        A job at its recursion limit or out of memory is not a failure of the client: then only
        this call is not measured.

        Raises:
            Exception: `error`, where a signal handler of the job raised it.
        """
        if isinstance(error, RecursionError | MemoryError):
            return
        if raised_by_the_job(error):
            try:
                raise error
            finally:
                del error  # otherwise this frame would keep the error and the job's frames alive
        self.miss(f"{type(error).__name__}: {error}")


LOADERS = Part("loaders")
DETAILS = Part("loader_details")
OPTIMIZERS = Part("optimizers")
CHECKPOINTS = Part("checkpoints")
AUTOCAST = Part("autocast")
STATED = Part("stated")
MARKS = Part("client")
WATCH = Part("client")
REPORTS = Part("client")


def raised_by_the_job(error: Exception) -> bool:
    """Return whether a function that handles a signal is among those that an error passed."""
    # The interpreter's own module: a job may have one that is called signal.
    signal: Any = sys.modules["_signal"]
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: Any) -> object:
    while type(handler) is functools.partial:
        handler = handler.func
    if type(handler) is MethodType:
        handler = handler.__func__
    elif type(handler) is not FunctionType:
        handler = vars(type(handler)).get("__call__")
    return handler.__code__ if type(handler) is FunctionType else None
