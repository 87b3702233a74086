# SPDX-License-Identifier: Apache-2.0
"""Observed and idle time of a share of a GPU up to any recent time."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

KEPT_INTERVALS = 16
"""How many intervals back a time can be read: reports wait for the counters."""
SLACK_RATIO = 0.1
"""A smaller gap between two intervals is ignored: their lengths are by the driver's clock."""


class GapTimes(NamedTuple):
    """Seconds of a share from its first reading up to a time."""

    observed: float
    idle: float
    """Seconds without work, taken as spread evenly over an interval."""
    least: float
    """The lower bound of idle seconds, wherever in its interval the idle time lies."""
    most: float
    """The upper bound: time that was not observed may have been idle."""


class _Interval(NamedTuple):
    start: float
    end: float
    before: GapTimes
    after: GapTimes

    def at(self, monotonic: float) -> GapTimes:
        (observed, idle, least, most), after = self.before, self.after
        passed, left = monotonic - self.start, self.end - monotonic
        return GapTimes(
            observed + passed,
            idle + (after.idle - idle) * passed / (self.end - self.start),
            least + max(0.0, after.least - least - left),
            most + min(after.most - most, passed),
        )


class GapClock:
    """Observed and idle seconds of a share as functions of time."""

    def __init__(self) -> None:
        self.begin: float | None = None
        """Monotonic time of the first reading; None before that."""
        self.end: float | None = None
        """Monotonic time of the end of the last observed interval."""
        self._total = GapTimes(0.0, 0.0, 0.0, 0.0)
        self._lag = 0.0
        self._intervals: deque[_Interval] = deque(maxlen=KEPT_INTERVALS)

    def advance(
        self,
        monotonic: float,
        seconds: float,
        gap_ratio: float | None,
        *,
        margin_ratio: float = 0.0,
        lag_seconds: float = 0.0,
    ) -> None:
        """Add an interval that ends at `monotonic`, or up to `lag_seconds` earlier; its ratio may
        be off by `margin_ratio`, and is None if it was not observed."""
        if self.end is None:
            self.begin = self.end = monotonic if gap_ratio is None else monotonic - seconds
        if gap_ratio is None or monotonic <= self.end:
            return
        start = max(monotonic - seconds, self.end)
        if start - self.end <= SLACK_RATIO * seconds:
            start = self.end
        unseen, length = start - self.end, monotonic - start
        idle = gap_ratio * length
        least = max(gap_ratio - margin_ratio, 0.0) * length
        most = min(gap_ratio + margin_ratio, 1.0) * length
        observed, idle_before, least_before, most_before = self._total
        before = GapTimes(observed, idle_before, least_before, most_before + unseen)
        self._total = GapTimes(
            observed + length, idle_before + idle, least_before + least, before.most + most
        )
        self._intervals.append(_Interval(start, monotonic, before, self._total))
        self._lag = lag_seconds
        self.end = monotonic

    def at(self, monotonic: float) -> GapTimes:
        """Return the times at a moment around the last intervals; between two of them the share was
        idle for ``later.least - earlier.most`` to ``later.most - earlier.least``."""
        times = self._at(monotonic)
        return times._replace(most=self._at(monotonic + self._lag).most) if self._lag else times

    def _at(self, monotonic: float) -> GapTimes:
        if self.end is None:
            return self._total
        if monotonic >= self.end:
            return self._total._replace(most=self._total.most + monotonic - self.end)
        later, until = self._total, self.end
        for interval in reversed(self._intervals):
            if monotonic > interval.end:  # it was not observed then
                return later._replace(most=later.most - (until - monotonic))
            if monotonic >= interval.start:
                return interval.at(monotonic)
            later, until = interval.before, interval.start
        # Before the oldest interval.
        return later._replace(least=max(0.0, later.least - (until - monotonic)))
