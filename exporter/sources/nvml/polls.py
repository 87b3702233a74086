# SPDX-License-Identifier: Apache-2.0
"""Utilization from polls: each is the mean over the driver's last averaging period.

The period is 1/6 s to 1 s, by GPU model, and not known. The window of a poll either slides and ends
at the poll, or it is the last whole period of the driver, which ended up to one period before.
"""

from __future__ import annotations

from typing import NamedTuple

SHORTEST_PERIOD_SECONDS = 1 / 6
LONGEST_PERIOD_SECONDS = 1.0
"""The averaging periods that the driver's documentation gives (nvml.h, nvmlUtilization_t)."""
ROUNDING_STEP = 0.01
"""Two polls of the same value may differ by so much more or less than their windows do."""
CLOCK_STEP_SECONDS = 1e-6


class Step(NamedTuple):
    """The contribution of one poll to its interval."""

    seconds: float
    """Since the poll before it; 0 for the first."""
    seen_seconds: float
    """The time that it counts for, which does not depend on its value."""
    highest_busy_seconds: float
    """What the integral of the polled ratio over `seconds` is at most."""
    lowest_busy_seconds: float
    """What it is at least."""


class PollTrack:
    """The polls of one utilization, and the longest averaging period that fits them."""

    def __init__(self) -> None:
        self.last_at: float | None = None
        """Monotonic time of the last poll; None at first and after `end`."""
        self._last_ratio = 0.0
        self._before_change: float | None = None
        """Monotonic time of the poll before the value last changed."""
        self._whole = self._sliding = LONGEST_PERIOD_SECONDS

    @property
    def longest_period_seconds(self) -> float:
        """The longest averaging period that agrees with all polls so far."""
        return max(self._whole, self._sliding)

    def add(self, ratio: float, monotonic_seconds: float) -> Step:
        """Take a poll.

        It counts for the time since the one before, but not for more than the shortest period: that
        much it has seen on every GPU model. If the polls are at most that far apart, each whole
        period is seen, and between two polls the value is one of theirs.
        """
        last_at, last_ratio = self.last_at, self._last_ratio
        self.last_at, self._last_ratio = monotonic_seconds, ratio
        if last_at is None:
            self._before_change = None
            return Step(0.0, 0.0, 0.0, 0.0)
        seconds = monotonic_seconds - last_at
        if ratio != last_ratio:
            self._learn(last_at, monotonic_seconds, abs(ratio - last_ratio))
        dense = seconds <= SHORTEST_PERIOD_SECONDS + CLOCK_STEP_SECONDS
        return Step(
            seconds,
            min(seconds, SHORTEST_PERIOD_SECONDS),
            max(ratio, last_ratio) * seconds if dense else seconds,
            min(ratio, last_ratio) * seconds if dense else 0.0,
        )

    def _learn(self, last_at: float, now: float, change: float) -> None:
        """Bound the period by a change of the value between two polls.

        Whole periods: two changes are at least one period apart. A sliding window: its mean changes
        by at most the time between the polls over the period.
        """
        if self._before_change is not None:
            self._whole = min(self._whole, now - self._before_change)
        self._before_change = last_at
        if change > ROUNDING_STEP:
            self._sliding = min(self._sliding, (now - last_at) / (change - ROUNDING_STEP))

    def end(self) -> None:
        """End the series of polls: the next one is a first one. The period stays known."""
        self.last_at = self._before_change = None
