# SPDX-License-Identifier: Apache-2.0
"""Log lines on standard error: whatever an event contains it is one line, and nobody waits for it.

Lines for standard error pass through a queue of bounded size, which a thread empties: while nobody
reads, lines are dropped and counted, and the process goes on.
"""

from __future__ import annotations

import atexit
import logging
import sys
from typing import TextIO

from exporter.log import foreign
from exporter.log.faults import log_faults
from exporter.log.form import FORMATTERS, JsonFormatter, LogfmtFormatter
from exporter.log.writer import LineWriter

__all__ = ["FORMATTERS", "LEVELS", "JsonFormatter", "LogfmtFormatter", "dropped", "flush", "setup"]

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

STANDARD_ERROR = 2
EXIT_SECONDS = 1.0
"""How long the exit waits for a reader."""


def setup(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to standard error at `level`, as ``logfmt`` or ``json``.

    May be called again with other values. A line ends with what its record carries in
    ``extra={"fields": {…}}``; it is cut where `form` says. A `stream` that is not standard error is
    written to by whoever logs.
    """
    formatter = FORMATTERS[form](tracebacks=level == "debug")
    stream = stream or sys.stderr
    handler: logging.Handler
    if _descriptor(stream) == STANDARD_ERROR:
        handler = _Queued(formatter)
        log_faults()
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    foreign.tame()
    logging.captureWarnings(True)


def dropped() -> int:
    """Return how many lines were dropped, or could not be written, since the start."""
    return _WRITER.dropped


def flush(seconds: float = EXIT_SECONDS) -> bool:
    """Wait until all lines so far are written; return False if nobody reads them for so long.

    What writes to standard error itself calls it first, so that its lines come last.
    """
    return _WRITER.flush(seconds)


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


_WRITER = LineWriter(STANDARD_ERROR, b"%d log lines were dropped\n".__mod__)
atexit.register(flush)
