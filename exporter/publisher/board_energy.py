# SPDX-License-Identifier: Apache-2.0
"""What the board drew in the time that an activity is of, which may have ended before its round."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

KEPT_SECONDS = 10.0
"""Longer ago than this nothing ended that is integrated."""


class Drawn:
    """The energy of a board up to each of its last rounds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque()
        """Monotonic time, and the joules until then."""

    def add(self, now: float, seconds: float, joules: float | None) -> None:
        """Take what was drawn in a round; one without (``seconds = 0``, None) begins anew."""
        if not self._marks or not seconds or joules is None:
            self._marks = deque([(now, 0.0)])
            return
        self._marks.append((now, self._marks[-1][1] + joules))
        while self._marks[1][0] < now - KEPT_SECONDS - seconds:
            self._marks.popleft()

    def between(self, start: float, end: float) -> float | None:
        """Return the joules between two monotonic times; None where not all is known."""
        before, after = self._until(start), self._until(end)
        return None if before is None or after is None else after - before

    def _until(self, at: float) -> float | None:
        for (since, before), (until, after) in pairwise(self._marks):
            if since <= at <= until:
                return before + (after - before) * (at - since) / (until - since)
        return None
