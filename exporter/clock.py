# SPDX-License-Identifier: Apache-2.0
"""Clocks as parameters, so that tests need not wait; when a reading is stale, or due."""

from __future__ import annotations

import time
from typing import Protocol

GAP_INTERVALS = 3
SHORTEST_STALE_SECONDS = 3.0


def stale_after_seconds(interval_seconds: float) -> float:
    """Return the age at which a reading stops counting as fresh: three intervals, at least 3 s."""
    return max(GAP_INTERVALS * interval_seconds, SHORTEST_STALE_SECONDS)


def next_due_seconds(due: float, interval_seconds: float, now: float) -> float:
    """Return the next time after `due`, one interval later; if late, skip some and keep the phase.

    All on one monotonic clock; what is returned lies after `now`.
    """
    due += interval_seconds
    if due <= now:
        due += interval_seconds * ((now - due) // interval_seconds + 1)
    return due


class Clock(Protocol):
    """Wall clock for timestamps, monotonic clock for durations; both in seconds."""

    def time(self) -> float:
        """Return Unix time."""

    def monotonic(self) -> float:
        """Return the time of a clock that never steps."""


class SystemClock:
    """The host's clocks."""

    def time(self) -> float:
        """Return Unix time."""
        return time.time()

    def monotonic(self) -> float:
        """Return the time of a clock that never steps."""
        return time.monotonic()
