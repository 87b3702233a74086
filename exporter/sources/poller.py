# SPDX-License-Identifier: Apache-2.0
"""Polls a scheduler, runtime or job every few seconds in a thread, and keeps its last report."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from exporter.clock import Clock
from exporter.model.snapshot import SourceState

INTERVAL_SECONDS = 10.0
MOST_BACKED_OFF = 4
"""The longest back-off, in intervals."""
MOST_BETWEEN_LOOKS = 6
"""The longest back-off of a source that was never there, in intervals: looks take time."""
_MOST_WHY = 300
"""Characters of a reason."""

Report = TypeVar("Report")

log = logging.getLogger(__name__)


class Unreadable(Exception):
    """The source exists but could not be read; says why in one line."""


class Busy(Unreadable):
    """The source limits the rate of requests."""


class PolledSource(Generic[Report]):
    """One source that is polled.

    `read` returns a report, None where this node has no such source, and raises Unreadable; any
    other exception costs this round only. A source that disappears is a fault, and its last report
    is kept, unless the source `comes_and_goes`.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Report | None],
        clock: Clock,
        interval_seconds: float = INTERVAL_SECONDS,
        *,
        comes_and_goes: bool = False,
    ) -> None:
        self.name = name
        self._read = read
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._report: Report | None = None
        self._read_at = 0.0
        self._seconds: float | None = None
        self._failures = 0
        self._problem: str | None = None
        """Why it could not be read the last time."""
        self._comes_and_goes = comes_and_goes
        self._there = comes_and_goes
        self.wait_seconds = interval_seconds
        """Until the next poll."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling; do not wait for a call that hangs."""
        self._stopped.set()

    def report(self) -> Report | None:
        """Return the last report, the same object until it changes; None if there was none."""
        return self._report

    @property
    def state(self) -> SourceState | None:
        """Its state; None if it was never there."""
        with self._lock:
            if not self._there:
                return None
            up = self._problem is None and self._report is not None
            age = None if self._report is None else self._clock.monotonic() - self._read_at
            return SourceState(up, self._seconds, self._failures, age)

    def read_once(self) -> None:
        """Poll once; keep the report, or why there is none."""
        started = self._clock.monotonic()
        problem: str | None = None
        report: Report | None = None
        busy = False
        try:
            report = self._read()
        except Unreadable as error:
            problem = _one_line(error)
            busy = isinstance(error, Busy)
        except Exception as error:
            problem = f"{type(error).__name__}: {_one_line(error)}"
            log.debug("%s", self.name, exc_info=True)
        now = self._clock.monotonic()
        with self._lock:
            before = self._problem
            if report is None and problem is None and not self._comes_and_goes:
                if not self._there:
                    self.wait_seconds = self._backed_off(MOST_BETWEEN_LOOKS)
                    return
                problem = "it is gone"
            self._there = True
            self._seconds = now - started
            self._problem = problem
            again = self._backed_off(MOST_BACKED_OFF)
            self.wait_seconds = again if busy else self._interval_seconds
            kept = self._report is not None and not self._comes_and_goes
            self._failures += problem is not None
            if problem is None:
                self._read_at = now
                if report != self._report:
                    self._report = report
        # Why it cannot be read may differ each time.
        if problem is not None and before is None:
            log.warning("source %s: %s%s", self.name, problem, "; its last word stays" * kept)
        elif problem is None and before is not None:
            log.info("source %s can be read again", self.name)

    def _backed_off(self, most: int) -> float:
        return min(2 * self.wait_seconds, most * self._interval_seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.read_once()
            self._stopped.wait(self.wait_seconds)


def _one_line(error: Exception) -> str:
    """Return the message of an error, or its type, without line breaks."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= _MOST_WHY else f"{said[:_MOST_WHY]}…"
