# SPDX-License-Identifier: Apache-2.0
"""How much of a GPU's idle time the waits of one rank explain, now and over the last seconds."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from exporter.model.snapshot import RECENT_SECONDS, Bounds
from exporter.publisher.ranks.gaps import GapClock, GapTimes
from exporter.publisher.ranks.windows import (
    SEEN_IDLE_RATIO,
    Mark,
    StallWindow,
    Window,
    before_the_first_report,
    between,
    was_observed,
)

SHORTEST_RECENT_SECONDS = 0.5
"""The least time for a ratio."""
FRESH_SECONDS = 5.0
"""A report counts for this long, or for two of the rank's own intervals if these are longer."""
SILENCE_SECONDS = 2.0
"""A loop with short steps reports every second: a rank that was silent for longer does something
else, and one that announces its waits does not wait, unless its own history says otherwise."""
HISTORY_SECONDS = 100.0
"""How much idle time in silences is remembered; older time counts less."""


class RankSummary(NamedTuple):
    """What a rank reported, over all its processes."""

    seconds: float
    """The monotonic time at which it was received."""
    wait: float | None
    """For data, in seconds; None where that is not measured."""
    stall: float | None
    loop_seconds: float
    """The wall time of its loops."""
    waiting: bool
    """Whether its one process is waiting for data from now on."""
    announces: bool
    several: bool
    """Whether more than one of its processes is alive."""
    ending: bool
    """Whether none is."""


class _Point(NamedTuple):
    """Totals up to a report, in seconds, between which they are taken to grow evenly."""

    seconds: float
    wait: float
    stall: float


class _Piece(NamedTuple):
    """The time between two reports that no announced wait fills, in seconds."""

    end: float
    seconds: float
    idle: float
    stalled: float


_UNSEEN = GapTimes(0.0, 0.0, 0.0, 0.0)


class Waits:
    """The waits of one rank; reports come in order, once the GPU was read up to them."""

    def __init__(self) -> None:
        self.wait_ratio: float | None = None
        self.stall_ratio: float | None = None
        self.bounds: Bounds | None = None
        """The last closed window's, as shares of it; None where the stall is measured."""
        self.bounded = False
        """Whether windows are formed."""
        self._windows: list[Window] = []
        self._last: RankSummary | None = None
        self._times = _UNSEEN
        """Of the GPU, up to that report."""
        self._seen = False
        """Whether the GPU could be seen up to it."""
        self._window: StallWindow | None = None
        self._points: deque[_Point] = deque()
        self._pieces: deque[_Piece] = deque()
        self._other_of_idle: float | None = None
        """The part of recent idle time outside announced waits that the stall covers."""
        self._silent_idle = self._silent_stall = 0.0
        """Idle time in silences that had not been announced, and how much of it was stalled."""
        self._fresh_until = float("-inf")

    def windows(self) -> list[Window]:
        """Return the windows that have grown since the last call, as they were at each report."""
        windows, self._windows = self._windows, []
        return windows

    def add(self, summary: RankSummary, gaps: GapClock | None) -> None:
        """Take what was reported, and the times of the GPU around then; None if it is not read."""
        times = _UNSEEN if gaps is None else gaps.at(summary.seconds)
        before, self._last = self._last, summary
        times_before, self._times = self._times, times
        seen, self._seen = self._seen and gaps is not None, gaps is not None
        if before is None or summary.seconds <= before.seconds:
            self._begin(summary, times)
            if before is None and gaps is not None and gaps.begin is not None:
                self._begin_bounds(summary, gaps.begin)
            return
        mark, marked = _mark(before, times_before), _mark(summary, times)
        waited = max(marked.wait - mark.wait, 0.0)
        idle = max(times.idle - times_before.idle, 0.0)
        self._bound(summary, before, marked)
        stalled = 0.0
        if summary.stall is not None:
            stalled = min(max(summary.stall - (before.stall or 0.0), 0.0), waited)
            if before.waiting and seen:
                # Its events are resolved later.
                stalled = min(waited, idle)
        last = self._points[-1]
        self._points.append(_Point(summary.seconds, last.wait + waited, last.stall + stalled))
        while len(self._points) > 2 and summary.seconds - self._points[1].seconds >= RECENT_SECONDS:
            self._points.popleft()
        if not before.waiting and seen:
            self._add_piece(
                summary, _Piece(summary.seconds, summary.seconds - before.seconds, idle, stalled)
            )
            if summary.seconds - before.seconds >= SILENCE_SECONDS and not summary.several:
                self._silent_idle += idle
                self._silent_stall += between(mark, marked).lower
                while self._silent_idle > HISTORY_SECONDS:
                    self._silent_idle /= 2
                    self._silent_stall /= 2
        spacing = summary.seconds - before.seconds
        self._fresh_until = summary.seconds + max(FRESH_SECONDS, 2 * spacing)

    def _begin(self, summary: RankSummary, times: GapTimes) -> None:
        """Take the first report: there is nothing before it to judge."""
        self._points.clear()
        self._points.append(_Point(summary.seconds, 0.0, 0.0))
        self._window = self._new_window(summary, times)

    def _begin_bounds(self, summary: RankSummary, observed_from: float) -> None:
        """Bound what it waited before its first report, as far as the GPU was observed then."""
        seconds = min(summary.loop_seconds, summary.seconds - observed_from)
        if self.bounded and seconds > 0.0:
            self._windows.append(before_the_first_report(_mark(summary, self._times), seconds))

    def _new_window(self, summary: RankSummary, times: GapTimes) -> StallWindow | None:
        self.bounded = self._seen and summary.wait is not None and summary.stall is None
        if not self.bounded:
            self.bounds = None
            return None
        return StallWindow(_mark(summary, times))

    def _bound(self, summary: RankSummary, before: RankSummary, now: Mark) -> None:
        """Add the time since the last report to the window that is open."""
        measured = summary.stall is not None
        if self._window is None or not self._seen or summary.wait is None or measured:
            self._window = self._new_window(summary, now.times)
            return
        window = self._window.add(
            now,
            announced=before.waiting,
            several=summary.several or before.several,
            ending=summary.ending,
        )
        seen = was_observed(window)
        if seen:
            self._windows.append(window)
        if window.over:
            self._window = StallWindow(now)
            self.bounds = window.ratios if seen else None
            self._other_of_idle = window.other_of_idle if seen else None

    def _add_piece(self, summary: RankSummary, piece: _Piece) -> None:
        pieces = self._pieces
        pieces.append(piece)
        while len(pieces) > 1 and summary.seconds - pieces[0].end >= RECENT_SECONDS:
            pieces.popleft()
        if summary.stall is None:
            return
        seconds = idle = stalled = 0.0
        for each in pieces:
            seconds += each.seconds
            idle += each.idle
            stalled += each.stalled
        if seconds >= SHORTEST_RECENT_SECONDS:
            self._other_of_idle = stalled / idle if idle > SEEN_IDLE_RATIO * seconds else None

    def fresh(self, now: float) -> bool:
        """Return whether what it reported of the last seconds is still valid."""
        return self._last is not None and (self._last.announces or now <= self._fresh_until)

    def of_idle(self, now: float) -> float | None:
        """Return the part of the idle time outside announced waits that its stall covers now."""
        last = self._last
        if last is None:
            return None
        if last.announces and now - last.seconds > SILENCE_SECONDS:
            return self._silent_stall / self._silent_idle if self._silent_idle else None
        return self._other_of_idle if now <= self._fresh_until else None

    def judge(self, now: float, gaps: GapClock | None) -> None:
        """Find the ratios of the last seconds: up to now, else up to its last report."""
        last = self._last
        if last is None:
            return
        end = self._points[-1]
        if last.announces and now > end.seconds:
            waiting = now - end.seconds if last.waiting else 0.0
            idle = 0.0 if gaps is None else max(gaps.at(now).idle - self._times.idle, 0.0)
            end = _Point(now, end.wait + waiting, end.stall + min(waiting, idle))
        wait, stall, seconds = self._since(end)
        if seconds < SHORTEST_RECENT_SECONDS:
            return
        self.wait_ratio = None if last.wait is None else min(wait / seconds, 1.0)
        self.stall_ratio = None if last.stall is None else min(stall / seconds, 1.0)

    def _since(self, end: _Point) -> tuple[float, float, float]:
        """Return wait, stall and length of the last `RECENT_SECONDS` before a time."""
        begin = end.seconds - RECENT_SECONDS
        earlier, later = self._points[0], end
        for point in self._points:
            if point.seconds > begin:
                later = point
                break
            earlier = point
        if earlier.seconds >= begin:
            start = earlier
        else:
            part = (begin - earlier.seconds) / (later.seconds - earlier.seconds)
            start = _Point(
                begin,
                earlier.wait + part * (later.wait - earlier.wait),
                earlier.stall + part * (later.stall - earlier.stall),
            )
        return end.wait - start.wait, end.stall - start.stall, end.seconds - start.seconds


def _mark(summary: RankSummary, times: GapTimes) -> Mark:
    return Mark(summary.seconds, summary.wait or 0.0, times)
