# SPDX-License-Identifier: Apache-2.0
"""Adds up the stall of all ranks on one share, without counting overlaps twice."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from exporter.model.snapshot import Bounds
from exporter.publisher.ranks.windows import Window

MOST_COUNTED = 64
"""Windows that are remembered one by one; older ones together."""


class _Counted(NamedTuple):
    """A part of the lower total, in seconds."""

    rank: object
    begin: float
    end: float
    seconds: float


class SharedStall:
    """The totals of one share over the windows of all its ranks; they never fall."""

    def __init__(self) -> None:
        self._counted: deque[_Counted] = deque()
        """What was added to the lower total."""
        self._uppers: dict[object, tuple[float, float]] = {}
        """By rank: where its window began, and its upper bound so far."""
        self._least = self._most = 0.0
        """The idle time up to the first begin and the last end of the windows that share time."""
        self._sum = self._given = 0.0
        """Of their upper bounds; and what of it was added."""

    def add(self, rank: object, window: Window, *, alone: bool) -> Bounds:
        """Return what a window that has grown adds to the lower and upper total, in seconds.

        `alone` says that no other rank is bounded on this share now.
        """
        return Bounds(self._lower(rank, window), self._upper(rank, window, alone=alone))

    def _lower(self, rank: object, window: Window) -> float:
        """Return what of its lower bound neither it nor one that overlaps can have counted."""
        begin, end = window.begin.seconds, window.end.seconds
        counted = sum(
            each.seconds for each in self._counted if each.begin < end and begin < each.end
        )
        more = max(0.0, window.bounds.lower - counted)
        if more:
            self._count(_Counted(rank, begin, end, more))
        return more

    def _count(self, more: _Counted) -> None:
        counted = self._counted
        last = counted[-1] if counted else None
        if last is not None and (last.rank, last.begin) == (more.rank, more.begin):
            counted[-1] = more._replace(seconds=last.seconds + more.seconds)
            return
        counted.append(more)
        if len(counted) > MOST_COUNTED:
            # As one they overlap whatever one of them does, so never too much is added.
            one, other = counted.popleft(), counted.popleft()
            start, stop = min(one.begin, other.begin), max(one.end, other.end)
            counted.appendleft(_Counted(None, start, stop, one.seconds + other.seconds))

    def _upper(self, rank: object, window: Window, *, alone: bool) -> float:
        """Return how much the sum of the upper bounds grows, cut to the idle time of the share."""
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
