# SPDX-License-Identifier: Apache-2.0
"""asyncio's logger: which levels are logged, and how many lines a minute."""

from __future__ import annotations

import logging
import time

MOST_LINES = 10
PERIOD_SECONDS = 60.0
"""A client could otherwise fill the log with errors of the event loop."""


class RateLimit(logging.Filter):
    """Passes MOST_LINES in each period; the next line says how many were left out."""

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
    """Hand asyncio's errors on to the root's handlers; may be called again.

    Its warnings are left out: of clients that went away while they were sent something.
    """
    logger = logging.getLogger("asyncio")
    logger.handlers.clear()
    logger.setLevel(logging.ERROR)
    logger.propagate = True
    logger.addFilter(_LIMIT)


_LIMIT = RateLimit()
