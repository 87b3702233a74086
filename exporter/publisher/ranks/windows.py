# SPDX-License-Identifier: Apache-2.0
"""Bounds the data stall of ranks that do not measure it, in windows of about 10 s.

A window is a sequence of pieces from report to report. Its stall is bounded as a whole and piece by
piece, and the tighter bounds count. No bound falls as the window grows.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from exporter.derive.stall import stall_bounds
from exporter.model.snapshot import Bounds
from exporter.publisher.ranks.gaps import GapTimes

BOUNDS_SECONDS = 10.0
"""The minimum length of a window that does not end with its process."""
OBSERVED_RATIO = 0.9
"""A window of which less was observed is not used."""
REPORT_DELAY_SECONDS = 0.02
"""From a report's measurement to its receipt: the ends of a window may be off by this much."""
SEEN_IDLE_RATIO = 0.001
"""With a smaller share of idle time there is nothing to explain."""

MOST_COUNTED = 64
"""Limit of windows that are kept one by one; older ones are merged."""


class Mark(NamedTuple):
    """The totals at a report."""

    seconds: float
    wait: float
    """The rank's wait for data, in seconds."""
    times: GapTimes


class Window(NamedTuple):
    """A window up to a report."""

    begin: Mark
    end: Mark
    bounds: Bounds
    """Bounds of the stall, in seconds."""
    other_of_idle: float | None
    """Lower bound of the stall's part of the idle time outside announced waits."""
    over: bool
    """Whether it is complete: the next report begins another one."""

    @property
    def ratios(self) -> Bounds:
        """The bounds as shares of the window."""
        seconds = self.end.seconds - self.begin.seconds
        return Bounds(min(self.bounds.lower / seconds, 1.0), min(self.bounds.upper / seconds, 1.0))


def between(before: Mark, now: Mark) -> Bounds:
    """Bound the stall between two reports, in seconds."""
    idle = Bounds(
        now.times.least - before.times.most - REPORT_DELAY_SECONDS,
        now.times.most - before.times.least + REPORT_DELAY_SECONDS,
    )
    return stall_bounds(now.wait - before.wait, idle, now.seconds - before.seconds)


class StallWindow:
    """The open window."""

    def __init__(self, begin: Mark) -> None:
        self._begin = self._last = begin
        self._lower = self._upper = 0.0
        self._announced_upper = 0.0
        self._other_lower = self._other_idle = self._other_seconds = 0.0
        self._several = False
        self._least = 0.0
        """The highest lower bound so far."""

    def add(self, now: Mark, *, announced: bool, several: bool, ending: bool) -> Window:
        """Add a piece up to a later report, perhaps an announced wait; return the window so far.

        The waits of `several` processes may overlap, so there is no lower bound. With `ending` the
        rank's last process has ended.
        """
        piece = between(self._last, now)
        lower, upper = piece.lower, piece.upper
        self._lower += lower
        self._upper += upper
        self._several = self._several or several
        if announced:
            self._announced_upper += upper
        else:
            self._other_lower += lower
            self._other_idle += now.times.idle - self._last.times.idle
            self._other_seconds += now.seconds - self._last.seconds
        self._last = now
        whole = between(self._begin, now)
        upper = min(self._upper, whole.upper)
        if not self._several:
            self._least = min(max(self._least, self._lower, whole.lower), upper)
        other = None
        if self._other_idle > SEEN_IDLE_RATIO * self._other_seconds:
            rest = max(self._other_lower, whole.lower - self._announced_upper)
            other = 0.0 if self._several else rest / self._other_idle
        seconds = now.seconds - self._begin.seconds
        over = ending or seconds >= BOUNDS_SECONDS
        return Window(self._begin, now, Bounds(self._least, upper), other, over)


def before_the_first_report(now: Mark, loop_seconds: float) -> Window:
    """Return the window up to a rank's first report: it waited within the last `loop_seconds`."""
    begin = Mark(now.seconds - loop_seconds, 0.0, GapTimes(0.0, 0.0, 0.0, 0.0))
    return Window(begin, now, Bounds(0.0, between(begin, now).upper), None, over=True)


def was_observed(window: Window) -> bool:
    """Return whether enough of a window was observed to use it."""
    observed = window.end.times.observed - window.begin.times.observed
    return observed >= OBSERVED_RATIO * (window.end.seconds - window.begin.seconds)


class _Added(NamedTuple):
    """What a window added to the lower total, in seconds; its begin and end are monotonic."""

    rank: object
    begin: float
    end: float
    seconds: float


class SharedStall:
    """The bounds of the stall of one share, over the windows of all its ranks; they never fall."""

    def __init__(self) -> None:
        self._counted: deque[_Added] = deque()
        self._uppers: dict[object, tuple[float, float]] = {}
        """By rank: where its window began, and its upper bound so far."""
        self._least = self._most = 0.0
        """The idle times at the first begin and the last end of the windows that share time."""
        self._sum = self._given = 0.0
        """The sum of their upper bounds, and what of it was added to the upper total."""

    def add(self, rank: object, window: Window, *, alone: bool) -> Bounds:
        """Return what a window adds to the totals (s); `alone` if no other rank has one now."""
        return Bounds(self._lower(rank, window), self._upper(rank, window, alone=alone))

    def _lower(self, rank: object, window: Window) -> float:
        """Return the part of its lower bound that no overlapping window has added yet."""
        begin, end = window.begin.seconds, window.end.seconds
        counted = sum(
            each.seconds for each in self._counted if each.begin < end and begin < each.end
        )
        more = max(0.0, window.bounds.lower - counted)
        if more:
            self._count(_Added(rank, begin, end, more))
        return more

    def _count(self, more: _Added) -> None:
        counted = self._counted
        last = counted[-1] if counted else None
        if last is not None and (last.rank, last.begin) == (more.rank, more.begin):
            counted[-1] = more._replace(seconds=last.seconds + more.seconds)
            return
        counted.append(more)
        if len(counted) > MOST_COUNTED:
            # Merged, they overlap at least as much, so the total stays a lower bound.
            one, other = counted.popleft(), counted.popleft()
            start, stop = min(one.begin, other.begin), max(one.end, other.end)
            counted.appendleft(_Added(None, start, stop, one.seconds + other.seconds))

    def _upper(self, rank: object, window: Window, *, alone: bool) -> float:
        """Return the growth of the sum of upper bounds, limited to the share's idle time."""
        begin, before = self._uppers.get(rank, (None, 0.0))
        grown = window.bounds.upper - (before if begin == window.begin.seconds else 0.0)
        self._uppers[rank] = window.begin.seconds, window.bounds.upper
        if alone:
            self._uppers = {rank: self._uppers[rank]}
            self._sum = self._given = 0.0
            return max(0.0, grown)
        least, most = window.begin.times.least, window.end.times.most
        if not self._sum:
            self._least, self._most = least, most
        self._least, self._most = min(self._least, least), max(self._most, most)
        self._sum += max(0.0, grown)
        more = max(0.0, min(self._sum, self._most - self._least) - self._given)
        self._given += more
        return more
