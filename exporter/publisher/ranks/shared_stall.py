# SPDX-License-Identifier: Apache-2.0
"""Adds up the inferred stall of all ranks on one share without counting overlaps twice."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from exporter.model.snapshot import Bounds
from exporter.publisher.ranks.windows import Window

MOST_COUNTED = 64
"""Limit of windows that are kept one by one; older ones are merged."""


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
        """The windows in the lower total."""
        self._uppers: dict[object, tuple[float, float]] = {}
        """By rank: where its window began, and its upper bound so far."""
        self._least = self._most = 0.0
        """The idle times at the first begin and the last end of the windows that share time."""
        self._sum = self._given = 0.0
        """The sum of their upper bounds, and what of it was added to the upper total."""

    def add(self, rank: object, window: Window, *, alone: bool) -> Bounds:
        """Return what a window that grew adds to the lower and upper total, in seconds; `alone` if
        no other rank of this share has a window now."""
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
