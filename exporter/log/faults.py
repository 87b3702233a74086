# SPDX-License-Identifier: Apache-2.0
"""Faults that nobody handles, as log lines: the interpreter itself would write to the stream."""

from __future__ import annotations

import logging
import sys
import threading
from types import TracebackType

log = logging.getLogger(__name__)

_WITH_TRACEBACK = {"traceback": True}


def log_faults() -> None:
    """Log what ends the process or a thread, and what is raised where nothing can be raised."""
    sys.excepthook = _ended
    threading.excepthook = _thread_ended
    sys.unraisablehook = _unraisable


def _ended(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    log.error("ended by a fault", exc_info=(kind, error, frames), extra=_WITH_TRACEBACK)


def _thread_ended(fault: threading.ExceptHookArgs) -> None:
    if fault.exc_type is SystemExit:
        return
    error = fault.exc_value or fault.exc_type()
    log.error(
        "the thread %s was ended by a fault",
        fault.thread.name if fault.thread is not None else "of no name",
        exc_info=(fault.exc_type, error, fault.exc_traceback),
        extra=_WITH_TRACEBACK,
    )


def _unraisable(fault: sys.UnraisableHookArgs) -> None:
    error = fault.exc_value or fault.exc_type()
    try:
        place = repr(fault.object)
    except Exception:
        place = object.__repr__(fault.object)
    log.error(
        "%s %s",
        fault.err_msg or "Exception ignored in",
        place,
        exc_info=(fault.exc_type, error, fault.exc_traceback),
    )
