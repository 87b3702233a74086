# SPDX-License-Identifier: Apache-2.0
"""When a child process that has ended is started again."""

from __future__ import annotations

BACK_OFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
GOOD_SECONDS = 60.0
"""A child that ran for so long starts the waits anew when it ends."""


class Restarts:
    """The waits between one child's end and the next one's start."""

    def __init__(self) -> None:
        self._ended_in_a_row = 0
        self._started = 0.0
        self._not_before = float("-inf")

    def may_start(self, now: float) -> bool:
        """Return whether it is time."""
        return now >= self._not_before

    def started(self, now: float) -> None:
        """Note a start."""
        self._started = now

    def ended(self, now: float) -> None:
        """Note an end that was not asked for, or a start that failed."""
        if now - self._started >= GOOD_SECONDS:
            self._ended_in_a_row = 0
        wait = BACK_OFF_SECONDS[min(self._ended_in_a_row, len(BACK_OFF_SECONDS) - 1)]
        self._ended_in_a_row += 1
        self._not_before = now + wait
