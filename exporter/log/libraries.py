# SPDX-License-Identifier: Apache-2.0
"""Loggers of libraries: which levels are logged, and how many lines a minute."""

from __future__ import annotations

import logging
import time

LEVELS = {
    "asyncio": logging.ERROR,
    "uvicorn": logging.WARNING,
    "uvicorn.asgi": logging.WARNING,
    "uvicorn.error": logging.WARNING,
    "uvicorn.access": logging.CRITICAL,
}
"""By logger: the lowest level that is logged. Requests and start-up are left out, and what asyncio
warns of: clients that went away while they were sent something."""
SILENT = "uvicorn.access"
"""It formats a line for each request unless it finds no handler up to the root."""
MOST_LINES = 10
PERIOD_SECONDS = 60.0
"""Of each logger: a client could otherwise fill the log with bad requests."""


class RateLimit(logging.Filter):
    """Passes MOST_LINES of a logger in each period; the next line says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._began = float("-inf")
        self._lines = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is logged."""
        now = time.monotonic()
        if now - self._began >= PERIOD_SECONDS:
            left_out = self._lines - MOST_LINES
            if left_out > 0:
                record.__dict__["fields"] = {"left_out": left_out}
            self._began, self._lines = now, 0
        self._lines += 1
        return self._lines <= MOST_LINES


def limit_libraries() -> None:
    """Let these loggers hand their lines on to the root's handlers; may be called again."""
    for name, lowest in LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(lowest)
        logger.propagate = name != SILENT
        if not any(isinstance(known, RateLimit) for known in logger.filters):
            logger.addFilter(RateLimit())
