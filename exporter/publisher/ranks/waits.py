# SPDX-License-Identifier: Apache-2.0
"""How much of a GPU's idle time one rank's waits for data explain."""

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
"""No ratio is computed over less time."""
FRESH_SECONDS = 5.0
"""A report is valid for this long, or for two report intervals of the rank if that is longer."""
SILENCE_SECONDS = 2.0
"""A loop with short steps reports every second. A rank that is silent for longer is not in its loop
and, if it announces its waits, waits only as far as its history shows."""
HISTORY_SECONDS = 100.0
"""Above this much idle time in silences, its history is halved."""


class RankSummary(NamedTuple):
    """What the processes of a rank reported, added up."""

    seconds: float
    wait: float | None
    """Total wait for data, in seconds; None where not measured."""
    stall: float | None
    """Total data stall, in seconds; None where not measured."""
    loop_seconds: float
    waiting: bool
    """Whether its only process has announced a wait for data."""
    announces: bool
    """Whether a process announces its long waits."""
    several: bool
    ending: bool


class _Point(NamedTuple):
    """Totals at a report, in seconds."""

    seconds: float
    wait: float
    stall: float


class _Piece(NamedTuple):
    """The time between two reports outside announced waits, in seconds."""

    end: float
    seconds: float
    idle: float
    stalled: float


_UNSEEN = GapTimes(0.0, 0.0, 0.0, 0.0)


class Waits:
    """The waits of one rank; reports come in order, after the GPU was read up to their time."""

    def __init__(self) -> None:
        self.wait_ratio: float | None = None
        self.stall_ratio: float | None = None
        self.bounds: Bounds | None = None
        """The stall's share of the last complete window; None where the stall is measured."""
        self.bounded = False
        self.grown: list[Window] = []
        """Windows as of each report, until somebody takes them."""
        self._last: RankSummary | None = None
        self._times = _UNSEEN
        self._seen = False
        """Whether the GPU was read then."""
        self._window: StallWindow | None = None
        self._points: deque[_Point] = deque()
        self._pieces: deque[_Piece] = deque()
        self._other_of_idle: float | None = None
        """The stall's part of recent idle time outside announced waits."""
        self._silent_idle = self._silent_stall = 0.0
        """Idle time in unannounced silences, and how much of it was stall."""
        self._fresh_until = float("-inf")

    def add(self, summary: RankSummary, gaps: GapClock | None) -> None:
        """Take a report; `gaps` are the times of its GPU, None if no GPU is read."""
        times = _UNSEEN if gaps is None else gaps.at(summary.seconds)
        before, self._last = self._last, summary
        times_before, self._times = self._times, times
        seen, self._seen = self._seen and gaps is not None, gaps is not None
        if before is None or summary.seconds <= before.seconds:
            self._points = deque([_Point(summary.seconds, 0.0, 0.0)])
            self._window = self._new_window(summary, times)
            if before is None and gaps is not None and gaps.begin is not None and self.bounded:
                seconds = min(summary.loop_seconds, summary.seconds - gaps.begin)
                if seconds > 0.0:
                    self.grown.append(before_the_first_report(_mark(summary, times), seconds))
            return
        mark, marked = _mark(before, times_before), _mark(summary, times)
        waited = max(marked.wait - mark.wait, 0.0)
        idle = max(times.idle - times_before.idle, 0.0)
        self._bound(summary, before, marked)
        stalled = 0.0
        if summary.stall is not None:
            stalled = min(max(summary.stall - (before.stall or 0.0), 0.0), waited)
            if before.waiting and seen:
                # The job resolves its CUDA events later.
                stalled = min(waited, idle)
        last = self._points[-1]
        self._points.append(_Point(summary.seconds, last.wait + waited, last.stall + stalled))
        while len(self._points) > 2 and summary.seconds - self._points[1].seconds >= RECENT_SECONDS:
            self._points.popleft()
        spacing = summary.seconds - before.seconds
        if not before.waiting and seen:
            self._add_piece(summary, _Piece(summary.seconds, spacing, idle, stalled))
            if spacing >= SILENCE_SECONDS and not summary.several:
                self._silent_idle += idle
                self._silent_stall += between(mark, marked).lower
                while self._silent_idle > HISTORY_SECONDS:
                    self._silent_idle /= 2
                    self._silent_stall /= 2
        self._fresh_until = summary.seconds + max(FRESH_SECONDS, 2 * spacing)

    def _new_window(self, summary: RankSummary, times: GapTimes) -> StallWindow | None:
        self.bounded = self._seen and summary.wait is not None and summary.stall is None
        if not self.bounded:
            self.bounds = None
            return None
        return StallWindow(_mark(summary, times))

    def _bound(self, summary: RankSummary, before: RankSummary, now: Mark) -> None:
        """Add the time since the last report to the open window."""
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
            self.grown.append(window)
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
        seconds = sum(each.seconds for each in pieces)
        idle = sum(each.idle for each in pieces)
        if seconds >= SHORTEST_RECENT_SECONDS:
            stalled = sum(each.stalled for each in pieces)
            self._other_of_idle = stalled / idle if idle > SEEN_IDLE_RATIO * seconds else None

    def fresh(self, now: float) -> bool:
        """Return whether the last report is still valid."""
        return self._last is not None and (self._last.announces or now <= self._fresh_until)

    def of_idle(self, now: float) -> float | None:
        """Return the stall's part of the idle time outside announced waits, now."""
        last = self._last
        if last is None:
            return None
        if last.announces and now - last.seconds > SILENCE_SECONDS:
            return self._silent_stall / self._silent_idle if self._silent_idle else None
        return self._other_of_idle if now <= self._fresh_until else None

    def judge(self, now: float, gaps: GapClock | None) -> None:
        """Compute the ratios of the last seconds, up to `now` or to the last report."""
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
        """Return wait, stall and length of the last `RECENT_SECONDS` before `end`."""
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
