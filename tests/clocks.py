# SPDX-License-Identifier: Apache-2.0
"""A clock that tests move by hand."""

from __future__ import annotations


class ManualClock:
    """Stands still until a test moves it; wall time and monotonic time advance together."""

    def __init__(self, unix_seconds: float = 1_000_000.0, monotonic_seconds: float = 100.0) -> None:
        self._unix = unix_seconds
        self._monotonic = monotonic_seconds

    def time(self) -> float:
        return self._unix

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._unix += seconds
        self._monotonic += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock, as an operator or NTP does."""
        self._unix += seconds
