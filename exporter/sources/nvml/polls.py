# SPDX-License-Identifier: Apache-2.0
"""Utilization from polls, and by polls the meaning of gaps in the samples.

A poll is the mean over an averaging period of the driver, which is 1/6 s to 1 s, by GPU model, and
not known: a window that ends at the poll, or the last whole period.
"""

from __future__ import annotations

from typing import NamedTuple

SHORTEST_PERIOD_SECONDS = 1 / 6
LONGEST_PERIOD_SECONDS = 1.0
"""The averaging periods that the driver's documentation gives (nvml.h, nvmlUtilization_t)."""
ROUNDING_STEP = 0.01
"""Two polls of the same value may differ by so much more or less than their windows do."""
CLOCK_STEP_SECONDS = 1e-6


SILENCES_NEEDED = 3
"""After so many idle gaps a gap means idle on this driver."""
SETTLED_SECONDS = 2.0
"""A poll may cover two of the longest averaging periods before it: of whole ones, the last."""
RESUMES_WITHIN_SECONDS = 1.5
"""How long work may show in polls before the first sample of it, at most."""
SUSPECT_SECONDS = 60.0
"""How long after a gap the driver is polled to find out what its gaps mean."""


class Step(NamedTuple):
    """The contribution of one poll to its interval."""

    seconds: float
    """Since the poll before it; 0 for the first."""
    seen_seconds: float
    """The time that it counts for, which does not depend on its value."""
    highest_busy_seconds: float
    """What the integral of the polled ratio over `seconds` is at most."""
    lowest_busy_seconds: float
    """What it is at least."""


class PollTrack:
    """The polls of one utilization, and the longest averaging period that fits them."""

    def __init__(self) -> None:
        self.last_at: float | None = None
        """Monotonic time of the last poll; None at first and after `end`."""
        self._last_ratio = 0.0
        self._before_change: float | None = None
        """When the poll before the value's last change was."""
        self._whole = self._sliding = LONGEST_PERIOD_SECONDS

    @property
    def longest_period_seconds(self) -> float:
        """The longest averaging period that agrees with all polls so far."""
        return max(self._whole, self._sliding)

    def add(
        self,
        ratio: float,
        monotonic_seconds: float,
        counts_seconds: float = SHORTEST_PERIOD_SECONDS,
    ) -> Step:
        """Take a poll, which counts for the time since the one before, at most `counts_seconds`.

        If polls are at most the shortest period apart, each whole period is seen, and between two
        polls the value is one of theirs.
        """
        last_at, last_ratio = self.last_at, self._last_ratio
        self.last_at, self._last_ratio = monotonic_seconds, ratio
        if last_at is None:
            self._before_change = None
            return Step(0.0, 0.0, 0.0, 0.0)
        seconds = monotonic_seconds - last_at
        if ratio != last_ratio:
            self._learn(last_at, monotonic_seconds, abs(ratio - last_ratio))
        dense = seconds <= SHORTEST_PERIOD_SECONDS + CLOCK_STEP_SECONDS
        return Step(
            seconds,
            min(seconds, counts_seconds),
            max(ratio, last_ratio) * seconds if dense else seconds,
            min(ratio, last_ratio) * seconds if dense else 0.0,
        )

    def _learn(self, last_at: float, now: float, change: float) -> None:
        """Bound the period by a change of the value between two polls: two changes of whole periods
        are at least one apart; a sliding mean changes by at most their distance over the period."""
        if self._before_change is not None:
            self._whole = min(self._whole, now - self._before_change)
        self._before_change = last_at
        if change > ROUNDING_STEP:
            self._sliding = min(self._sliding, (now - last_at) / (change - ROUNDING_STEP))

    def end(self) -> None:
        """End the series of polls: the next one is a first one. The period stays known."""
        self.last_at = self._before_change = None


class Silences:
    """Whether gaps in a sample buffer mean that the GPU was idle, which polls in the gaps show.

    Some drivers take no samples while nothing runs (seen on DGX Spark), others answer late or not
    at all.
    """

    def __init__(self) -> None:
        self._idle_ones = 0
        self._refuted = False
        self._last_poll: float | None = None
        """The last poll in the present gap; None without one."""
        self._rested = False
        """Whether one of them read zero."""
        self._busy_age: float | None = None
        """The age of the last sample at the first poll that did not, after SETTLED_SECONDS."""
        self._suspect_until = float("-inf")

    @property
    def mean_idle(self) -> bool:
        """Whether a gap means that nothing runs."""
        return self._idle_ones >= SILENCES_NEEDED and not self._refuted

    @property
    def understood(self) -> bool:
        """Whether a gap means idle, and no poll in the present one contradicts it."""
        return self.mean_idle and self._busy_age is None

    @property
    def idle_now(self) -> bool:
        """Whether a gap means idle, and the last poll read zero."""
        return self.understood and not self._last_poll

    def unclear(self, monotonic_seconds: float) -> bool:
        """Return whether there were gaps lately whose meaning is not known yet."""
        return not (self.mean_idle or self._refuted) and monotonic_seconds < self._suspect_until

    def poll(self, ratio: float, age_seconds: float) -> None:
        """Add a poll in a gap, so long after the last sample."""
        self._last_poll = ratio
        if ratio == 0.0:
            self._rested = True
        elif self._busy_age is None and age_seconds >= SETTLED_SECONDS:
            self._busy_age = age_seconds
        if self._busy_age is not None and age_seconds - self._busy_age > RESUMES_WITHIN_SECONDS:
            self._refuted = True

    def resumed(self, silent_seconds: float, monotonic_seconds: float) -> None:
        """Record the end of a gap: `silent_seconds` before this sample's period have no samples; 0
        where they were only late."""
        if silent_seconds > 0:
            self._suspect_until = monotonic_seconds + SUSPECT_SECONDS
            worked = self._busy_age is not None and self._busy_age <= silent_seconds
            if self._rested and not worked:
                self._idle_ones += 1
        self._rested = False
        self._last_poll = self._busy_age = None
