# SPDX-License-Identifier: Apache-2.0
"""Which part of each minute is sampled, where it is not all of it."""

from __future__ import annotations

from collections.abc import Callable

CYCLE_SECONDS = 60.0
"""In one piece: a GPU changes between measured and bounded once a minute, not every few seconds."""
SHORTEST_BURST_SECONDS = 3.0
"""Less is lost in starting to sample; with a smaller share a cycle takes longer than a minute."""


class Duty:
    """One burst of sampling in each cycle, at a moment of it that is drawn anew.

    A job that does the same at the same second of each minute is thereby seen as it is.
    """

    def __init__(self, ratio: float, began: float, draw: Callable[[], float]) -> None:
        """Sample a share `ratio` of the time since `began`; ``draw()`` is uniform in [0, 1)."""
        self._draw = draw
        self._is_whole = ratio >= 1.0
        self._cycle_seconds = max(CYCLE_SECONDS, SHORTEST_BURST_SECONDS / ratio)
        self._burst_seconds = ratio * self._cycle_seconds
        self._cycle_ends = began
        self._burst_begins = began

    def is_on(self, now: float) -> bool:
        """Return whether it is time to sample."""
        if self._is_whole:
            return True
        if now >= self._cycle_ends:
            missed = (now - self._cycle_ends) // self._cycle_seconds
            cycle_begins = self._cycle_ends + missed * self._cycle_seconds
            self._cycle_ends = cycle_begins + self._cycle_seconds
            latest = self._cycle_seconds - self._burst_seconds
            self._burst_begins = cycle_begins + latest * self._draw()
        return self._burst_begins <= now < self._burst_begins + self._burst_seconds
