# SPDX-License-Identifier: Apache-2.0
"""Time that passes for a source with a thread of its own, on the test's clock."""

from __future__ import annotations

from typing import Protocol

from exporter.sources.dcgm.dcgm_counters import PageSource


class MovedClock(Protocol):
    """A clock that tests move by hand."""

    def monotonic(self) -> float:
        """Return its time."""

    def advance(self, seconds: float) -> None:
        """Move it."""


class Turns:
    """Gives a source its turns when it asks for them."""

    def __init__(self, source: PageSource, clock: MovedClock) -> None:
        self._source, self._clock = source, clock
        self._next = clock.monotonic()

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        due = self._clock.monotonic() + seconds
        while True:
            now = self._clock.monotonic()
            if now >= self._next:
                wait = self._source.step()
                self._next = self._clock.monotonic() + wait
            elif now >= due:
                return
            self._clock.advance(max(min(self._next, due) - now, 1e-9))
