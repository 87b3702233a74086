# SPDX-License-Identifier: Apache-2.0
"""Bounds the stall of a rank that does not measure it, in windows from report to report.

A window holds the time between two reports, and as many of these as make ten seconds. It is bounded
as a whole and piece by piece, and the tighter of the two counts: a long wait that was reported as
it began is a piece of its own, in which idle time is stalled time. What is certain after a report
stays so, however the window goes on: no bound of it falls as it grows.
"""

from __future__ import annotations

from typing import NamedTuple

from exporter.derive.stall import stall_bounds
from exporter.model.snapshot import Bounds
from exporter.publisher.ranks.gaps import GapTimes

BOUNDS_SECONDS = 10.0
"""The least length of a window, except for one that ends with its process."""
OBSERVED_RATIO = 0.9
"""Nothing is inferred from a window of which less than this part was observed."""
REPORT_DELAY_SECONDS = 0.02
"""A report is stamped when it is read, so long after the job took its times: the two ends of a
window lie that much off those of the wait that they count."""
SEEN_IDLE_RATIO = 0.001
"""With a smaller part of idle time there is nothing to explain."""


class Mark(NamedTuple):
    """What was known as of a report."""

    seconds: float
    """The monotonic time at which it was received."""
    wait: float
    """For data, in seconds."""
    times: GapTimes
    """Of the share of the GPU."""


class Window(NamedTuple):
    """A window up to a report; all in seconds."""

    begin: Mark
    end: Mark
    bounds: Bounds
    """Of the stall in it."""
    other_of_idle: float | None
    """The lower bound of the stall outside announced waits, as a part of the idle time there; None
    where there was none."""
    over: bool
    """Whether the next report begins another one."""

    @property
    def ratios(self) -> Bounds:
        """The bounds as shares of the window."""
        seconds = self.end.seconds - self.begin.seconds
        return Bounds(min(self.bounds.lower / seconds, 1.0), min(self.bounds.upper / seconds, 1.0))


def between(before: Mark, now: Mark) -> Bounds:
    """Bound the stall between two reports, in seconds, whatever the clocks of the two observers."""
    idle = Bounds(
        now.times.least - before.times.most - REPORT_DELAY_SECONDS,
        now.times.most - before.times.least + REPORT_DELAY_SECONDS,
    )
    return stall_bounds(now.wait - before.wait, idle, now.seconds - before.seconds)


class StallWindow:
    """The window that is open."""

    def __init__(self, begin: Mark) -> None:
        self._begin = self._last = begin
        self._lower = self._upper = 0.0
        """The sums over its pieces."""
        self._announced_upper = 0.0
        self._other_lower = self._other_idle = self._other_seconds = 0.0
        self._several = False
        self._least = 0.0
        """The greatest lower bound so far."""

    def add(self, now: Mark, *, announced: bool, several: bool, ending: bool) -> Window:
        """Add the time up to a later report; return the window up to then.

        `announced` says that it was spent in a wait for data, `several` that more than one process
        waited under this rank (their waits may overlap, so nothing is known of the least), and
        `ending` that the rank's last process has ended.
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
    """Return the window up to the first report that was seen of a rank.

    Its waits lie somewhere in the last `loop_seconds`, for which the share is observed.
    """
    begin = Mark(now.seconds - loop_seconds, 0.0, GapTimes(0.0, 0.0, 0.0, 0.0))
    return Window(begin, now, Bounds(0.0, between(begin, now).upper), None, over=True)


def was_observed(window: Window) -> bool:
    """Return whether enough of a window was observed to infer anything from it."""
    observed = window.end.times.observed - window.begin.times.observed
    return observed >= OBSERVED_RATIO * (window.end.seconds - window.begin.seconds)
