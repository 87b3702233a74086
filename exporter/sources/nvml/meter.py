# SPDX-License-Identifier: Apache-2.0
"""Utilization over an interval, and an upper bound of the true value, from samples or polls.

The driver's sample buffer holds one mean per sampling period (1/6 s to 1 s, by GPU model), stamped
at the period's end, so consecutive samples cover time without gaps: their weighted mean is exact
for the time that they cover. A poll (``nvmlDeviceGetUtilizationRates``) covers only the last
period, so polls leave gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

HISTORY_SECONDS = 10.0
"""How long a GPU must have been quiet until time without a sample counts as quiet, too."""
ROUNDING_MARGIN = 0.01
"""The driver reports whole percents; whether rounded or cut is not documented."""
SILENT_SECONDS = 2.0
"""A buffer without a new sample for this long (two of the longest periods) does not answer: the
utilization is polled instead."""
STALE_SECONDS = 3.0
"""How long the last value is used; three intervals if that is more."""
STALE_INTERVALS = 3
LONGEST_PERIOD_SECONDS = 1.0
HOLE_FACTOR = 1.5
"""A gap longer than its neighbours by this factor means that unread samples were overwritten."""
POLL_REACH_SECONDS = 1 / 3
"""An interval shorter than this may hold the busy time of two whole polls (of 1/6 s each)."""


class UtilizationMeter:
    """One utilization (compute or memory) of one GPU, read to read.

    Give it each round's new samples or polls, then take the interval with `close`.
    """

    def __init__(self) -> None:
        self._history: deque[tuple[float, float]] = deque()
        """The highest ratio of each interval: (when it was closed, ratio)."""
        self._peak: float | None = None
        """The highest ratio since the last close."""
        self._observed_since: float | None = None
        """Since when the history has no hole."""
        self._quiet = False
        self._last_stamp: float | None = None
        self._gap = self._period = LONGEST_PERIOD_SECONDS
        self._newest: float | None = None
        self._noted_at = float("-inf")
        """Monotonic time at which it was read."""
        self._newest_at: float | None = None
        self._last_poll_at: float | None = None
        self._closed_at: float | None = None
        self._sampled = False
        self._refused = 0
        self._ahead = 0.0
        """How far the samples of the last interval reach into this one, in seconds."""
        self._clear()

    def _clear(self) -> None:
        """Start an interval."""
        self._busy = self._covered = self._hole = self._unknown = 0.0
        self._resumed = False
        self._polled = False

    def take_refused(self) -> int:
        """Return how many values outside 0 to 1 were refused since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def add_samples(self, samples: Sequence[tuple[float, float]], monotonic_seconds: float) -> None:
        """Take new samples: (the driver's stamp in seconds, ratio), oldest first."""
        last = self._last_stamp
        new = [sample for sample in samples if last is None or sample[0] > last]
        if new:
            if not self._sampled:
                self._sampled = True
                # The time of these samples has been counted by polls.
                self._resumed = self._closed_at is not None
            if self._observed_since is None:
                self._observed_since = monotonic_seconds - (new[-1][0] - new[0][0])
            self._newest_at = monotonic_seconds
            counts = self._closed_at is not None and not self._resumed
            usual = max((later[0] - sooner[0] for sooner, later in pairwise(new)), default=None)
            for stamp, ratio in new:
                self._add_sample(stamp, ratio, self._gap if usual is None else usual, counts)
                if 0.0 <= ratio <= 1.0:
                    self._note(ratio, monotonic_seconds)
        elif (
            self._sampled
            and self._newest_at is not None
            and monotonic_seconds - self._newest_at > SILENT_SECONDS
        ):
            self._sampled = False
            self._last_poll_at = self._observed_since = None

    def _add_sample(self, stamp: float, ratio: float, usual_gap: float, counts: bool) -> None:
        seconds = self._period
        if self._last_stamp is not None:
            gap = stamp - self._last_stamp
            if gap <= HOLE_FACTOR * min(usual_gap, LONGEST_PERIOD_SECONDS):
                self._period = seconds = gap
            elif counts:
                # After a hole in the buffer only the sample's own period is known.
                seconds = min(gap, self._period)
                self._hole += gap - seconds
            self._gap = gap
        self._last_stamp = stamp
        if not 0.0 <= ratio <= 1.0:
            self._refused += 1
            self._unknown += seconds
        elif counts:
            self._busy += ratio * seconds
            self._covered += seconds

    @property
    def wants_polls(self) -> bool:
        """True while there is no sample buffer that answers."""
        return not self._sampled

    def add_poll(self, ratio: float, monotonic_seconds: float) -> None:
        """Take one poll; it stands for the time since the poll before it."""
        if not 0.0 <= ratio <= 1.0:
            self._refused += 1
            return
        if self._last_poll_at is not None and self._closed_at is not None:
            seconds = monotonic_seconds - self._last_poll_at
            self._busy += ratio * seconds
            self._covered += seconds
        if self._observed_since is None:
            self._observed_since = monotonic_seconds
        self._last_poll_at = monotonic_seconds
        self._polled = True
        self._note(ratio, monotonic_seconds)

    def _note(self, ratio: float, monotonic_seconds: float) -> None:
        self._newest, self._noted_at = ratio, monotonic_seconds
        if self._peak is None or ratio > self._peak:
            self._peak = ratio

    @property
    def quiet(self) -> bool:
        """True if the last ten seconds are known without a gap and all values in them are zero."""
        return self._quiet

    def close(
        self, monotonic_seconds: float, stamp_seconds: float
    ) -> tuple[float, float, float] | None:
        """End the interval; return (mean ratio, upper ratio, seconds that the mean covers).

        `stamp_seconds` is now on the driver's clock. The upper ratio counts the time without a
        sample as busy unless the last ten seconds were all zero; without samples it is the
        highest poll of the last ten seconds, and 1 until there are ten seconds of polls. None if
        nothing was read for three intervals, at least three seconds.
        """
        if self._peak is not None:
            self._history.append((monotonic_seconds, self._peak))
            self._peak = None
        while self._history and self._history[0][0] < monotonic_seconds - HISTORY_SECONDS:
            self._history.popleft()
        if not self._sampled and not self._polled:
            # The next value must not count for the time in which nothing was read.
            self._last_poll_at = self._observed_since = None
        known = (
            self._observed_since is not None
            and monotonic_seconds - self._observed_since >= HISTORY_SECONDS
        )
        highest = max((ratio for _, ratio in self._history), default=None)
        self._quiet = known and highest == 0.0
        length = 0.0 if self._closed_at is None else monotonic_seconds - self._closed_at
        # Half an interval less, so that jitter does not move it from the third close.
        stale = max(STALE_SECONDS, STALE_INTERVALS * length) - min(length, 1.0) / 2
        result = None
        if self._newest is not None and monotonic_seconds - self._noted_at < stale:
            ratio = self._busy / self._covered if self._covered > 0 else self._newest
            if highest is None:
                bound = 1.0
            elif self._sampled and not self._resumed:
                bound = highest + ROUNDING_MARGIN
                if length > 0:
                    bound = self._sampled_bound(length, stamp_seconds)
            else:
                reach = POLL_REACH_SECONDS / length if length > 0 else 1.0
                bound = highest * max(1.0, reach) + ROUNDING_MARGIN if known else 1.0
            upper = min(1.0, max(bound, ratio + ROUNDING_MARGIN))
            result = ratio, upper, self._covered
        self._closed_at = monotonic_seconds
        self._ahead = self._stamps_ahead(stamp_seconds)
        self._clear()
        return result

    def _sampled_bound(self, length: float, stamp_seconds: float) -> float:
        """Return the highest mean over the interval of `length` that the samples allow."""
        uncovered = self._ahead + self._hole + self._since_last_sample(stamp_seconds)
        if self._quiet:
            # A value that is rounded to zero may still be this much of one period.
            uncovered = ROUNDING_MARGIN * max(uncovered, self._period)
        busy = self._busy + ROUNDING_MARGIN * self._covered + self._unknown
        return (busy + uncovered) / length

    def _since_last_sample(self, stamp_seconds: float) -> float:
        """Return the seconds that no sample covers yet; one period if the clocks differ."""
        age = stamp_seconds - (self._last_stamp or 0.0)
        return max(0.0, age) if abs(age) <= STALE_SECONDS else self._period

    def _stamps_ahead(self, stamp_seconds: float) -> float:
        """Return how far the samples reach past now: a slow driver answers after the reading."""
        ahead = (self._last_stamp or 0.0) - stamp_seconds
        return ahead if 0.0 < ahead <= STALE_SECONDS else 0.0


def busy_mean(
    values: Iterable[tuple[float, float]], weights: Iterable[tuple[float, float]]
) -> float | None:
    """Return the mean of sampled `values`, each weighted by the utilization sampled nearest to it.

    Both are (stamp, value), oldest first. Without any busy sample it is the plain mean; None
    without values.
    """
    points = list(values)
    if not points:
        return None
    marks = list(weights)
    total = weight_sum = 0.0
    at = 0
    for stamp, value in points:
        while at + 1 < len(marks) and abs(marks[at + 1][0] - stamp) <= abs(marks[at][0] - stamp):
            at += 1
        weight = marks[at][1] if marks else 0.0
        total += value * weight
        weight_sum += weight
    if weight_sum > 0:
        return total / weight_sum
    return sum(value for _, value in points) / len(points)
