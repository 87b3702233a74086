# SPDX-License-Identifier: Apache-2.0
"""Logs what goes wrong in the event loop: one line a minute for each kind, with how many more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

EVERY_SECONDS = 60.0
MOST_KINDS = 32

log = logging.getLogger(__name__)


class LoopErrors:
    """The exception handler of an event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """When a line was last logged, and how many were left out since."""

    def __call__(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log this error, or count it."""
        error = context.get("exception")
        kind = (str(context.get("message", "")), type(error).__name__)
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = ("other errors", "")
        now = self._clock()
        logged, left_out = self._kinds.get(kind, (None, 0))
        if logged is not None and now - logged < EVERY_SECONDS:
            self._kinds[kind] = (logged, left_out + 1)
            return
        self._kinds[kind] = (now, 0)
        fields = {"left_out": left_out or None}
        log.error("event loop: %s", kind[0], exc_info=error, extra={"fields": fields})
