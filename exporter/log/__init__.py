# SPDX-License-Identifier: Apache-2.0
"""Log lines on standard error: one line for each event, written without blocking its caller.

Lines for standard error pass through a queue of bounded size, which a thread empties: while nobody
reads, lines are dropped and counted, and the process goes on.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from types import TracebackType
from typing import TextIO

from exporter.log.formatters import LineFormatter
from exporter.log.writer import LineWriter

__all__ = ["LineFormatter", "dropped", "flush", "setup"]

STANDARD_ERROR = 2
EXIT_SECONDS = 1.0
"""How long the exit waits for a reader."""
MOST_ASYNCIO_LINES = 10
PERIOD_SECONDS = 60.0
"""A client could otherwise fill the log with errors of the event loop."""


def setup(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to standard error at `level`, as ``logfmt`` or ``json``.

    May be called again with other values. A line ends with what its record carries in
    ``extra={"fields": {…}}``; `formatters` says where it is cut. A `stream`
    that is not standard error is written to directly.
    """
    formatter = LineFormatter(form, tracebacks=level == "debug")
    stream = stream or sys.stderr
    handler: logging.Handler
    if _descriptor(stream) == STANDARD_ERROR:
        handler = _Queued(formatter)
        _log_uncaught()
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    _limit_asyncio()
    logging.captureWarnings(True)


def dropped() -> int:
    """Return how many lines were dropped, or could not be written, since the start."""
    return _WRITER.dropped


def flush(seconds: float = EXIT_SECONDS) -> bool:
    """Wait until all lines so far are written; return False if nobody reads them for so long.

    Call it before writing to standard error directly, so that these lines come last.
    """
    return _WRITER.flush(seconds)


class AsyncioLimit(logging.Filter):
    """Passes MOST_ASYNCIO_LINES in each period; the next line says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._began = float("-inf")
        self._lines = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is logged."""
        now = time.monotonic()
        if now - self._began >= PERIOD_SECONDS:
            left_out = self._lines - MOST_ASYNCIO_LINES
            if left_out > 0:
                record.__dict__["fields"] = {"left_out": left_out}
            self._began, self._lines = now, 0
        self._lines += 1
        return self._lines <= MOST_ASYNCIO_LINES


class _Queued(logging.Handler):
    """Hands lines to the writer."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        _WRITER.describe_gap = self._describe_gap

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:
            line = self.format(_record(logging.ERROR, "a line cannot be formatted", error))
        _WRITER.put(line.encode() + b"\n")

    def _describe_gap(self, lines: int) -> bytes:
        record = _record(logging.WARNING, "log lines were dropped: nobody read them")
        record.__dict__["fields"] = {"lines": lines}
        return self.format(record).encode() + b"\n"


def _record(level: int, message: str, error: Exception | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord(__name__, level, __file__, 0, message, None, info)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _limit_asyncio() -> None:
    """Hand asyncio's errors on to the root's handlers, and none of its warnings.

    Those are of clients that went away while they were sent something.
    """
    logger = logging.getLogger("asyncio")
    logger.handlers.clear()
    logger.setLevel(logging.ERROR)
    logger.propagate = True
    logger.addFilter(_LIMIT)


def _log_uncaught() -> None:
    """Log uncaught exceptions of the process and its threads, and those in finalizers."""
    sys.excepthook = _ended
    threading.excepthook = _thread_ended
    sys.unraisablehook = _unraisable


def _ended(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    _LOG.error("ended by a fault", exc_info=(kind, error, frames), extra={"traceback": True})


def _thread_ended(fault: threading.ExceptHookArgs) -> None:
    if fault.exc_type is not SystemExit:
        name = fault.thread.name if fault.thread is not None else "of no name"
        said = f"the thread {name} was ended by a fault"
        _LOG.error(said, exc_info=_information(fault), extra={"traceback": True})


def _unraisable(fault: sys.UnraisableHookArgs) -> None:
    try:
        place = repr(fault.object)
    except Exception:
        place = object.__repr__(fault.object)
    _LOG.error(
        "%s %s", fault.err_msg or "Exception ignored in", place, exc_info=_information(fault)
    )


def _information(
    fault: threading.ExceptHookArgs | sys.UnraisableHookArgs,
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    return fault.exc_type, fault.exc_value or fault.exc_type(), fault.exc_traceback


_LOG = logging.getLogger(__name__)
_LIMIT = AsyncioLimit()
_WRITER = LineWriter(STANDARD_ERROR, b"%d log lines were dropped\n".__mod__)
atexit.register(flush)
