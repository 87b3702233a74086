# SPDX-License-Identifier: Apache-2.0
"""The stall of a share on which ranks come and go: their windows, added up without overlap."""

from __future__ import annotations

from collections import deque

from exporter.model.snapshot import Bounds
from exporter.publisher.ranks.windows import Window

MOST_COUNTED = 64
"""Windows that are remembered one by one; older ones together."""


class SharedStall:
    """What the windows of all ranks on one share add to its totals, which never fall."""

    def __init__(self) -> None:
        self._counted: deque[tuple[float, float, float]] = deque()
        """Begin, end and seconds of what was added to the lower total."""
        self._least = self._most = 0.0
        """The idle time up to the first begin and the last end of the windows that share time."""
        self._sum = self._given = 0.0
        """Of their upper bounds; and what of it was added."""

    def add(self, window: Window, *, alone: bool) -> Bounds:
        """Return what a window that has closed adds to the lower and upper total, in seconds.

        `alone` says that no other rank is bounded on this share now.
        """
        return Bounds(self._lower(window), self._upper(window, alone=alone))

    def _lower(self, window: Window) -> float:
        """Return what of its lower bound no overlapping window can have counted already."""
        begin, end = window.begin.seconds, window.end.seconds
        counted = sum(
            seconds for start, stop, seconds in self._counted if start < end and begin < stop
        )
        more = max(0.0, window.bounds.lower - counted)
        if more:
            self._counted.append((begin, end, more))
            if len(self._counted) > MOST_COUNTED:
                # As one they overlap whatever one of them does, so never too much is added.
                one, other = self._counted.popleft(), self._counted.popleft()
                start, stop = min(one[0], other[0]), max(one[1], other[1])
                self._counted.appendleft((start, stop, one[2] + other[2]))
        return more

    def _upper(self, window: Window, *, alone: bool) -> float:
        """Return how much the sum of the upper bounds grows, cut to the idle time of the share."""
        least, most = window.begin.times.least, window.end.times.most
        if alone or not self._sum:
            self._least, self._most, self._sum, self._given = least, most, 0.0, 0.0
        self._least, self._most = min(self._least, least), max(self._most, most)
        self._sum += window.bounds.upper
        given = min(self._sum, max(self._most - self._least, window.bounds.upper))
        more = max(0.0, given - self._given)
        self._given += more
        return more
