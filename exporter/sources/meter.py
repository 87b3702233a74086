# SPDX-License-Identifier: Apache-2.0
"""Utilization over an interval, and a bound that the truth never exceeds, from samples or polls.

The driver's sample buffer holds one mean per sampling period (1/6 s to 1 s by product), stamped
at the period's end, so consecutive samples cover time without gaps: their weighted mean is exact
for the time that they cover. A poll (``nvmlDeviceGetUtilizationRates``) covers only the last
period, so polls leave gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

HISTORY_SECONDS = 10.0
"""How long a GPU must have been quiet before time without a sample counts as quiet too."""
ROUNDING_MARGIN = 0.01
"""The driver reports whole percents."""
STALE_SECONDS = 3.0
"""A buffer that brought nothing new for this long does not answer; polls take over."""
LONGEST_PERIOD_SECONDS = 1.0


class UtilizationMeter:
    """One utilization (compute or memory) of one GPU, read to read.

    Give it each round's new samples or polls, then take the interval with `close`.
    """

    def __init__(self) -> None:
        self._history: deque[tuple[float, float]] = deque()
        self._last_stamp: float | None = None
        self._period = LONGEST_PERIOD_SECONDS
        self._newest: float | None = None
        self._newest_at: float | None = None
        self._last_poll_at: float | None = None
        self._closed_at: float | None = None
        self._busy = 0.0
        self._covered = 0.0
        self._unknown = 0.0
        self._sampled = False
        self._refused = 0

    def take_refused(self) -> int:
        """Return how many values outside 0 to 1 were refused since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def add_samples(self, samples: Iterable[tuple[float, float]], monotonic_seconds: float) -> None:
        """Take new samples: (the driver's stamp in seconds, ratio), oldest first."""
        for stamp, ratio in samples:
            previous = self._last_stamp
            if previous is not None and stamp <= previous:
                continue
            self._last_stamp = stamp
            if not 0.0 <= ratio <= 1.0:
                self._refused += 1
                self._unknown += self._period
                continue
            if previous is not None:
                gap = stamp - previous
                if gap <= LONGEST_PERIOD_SECONDS:
                    self._period = gap
                # After a hole in the buffer only the sample's own period is known.
                seconds = min(gap, self._period)
                if self._closed_at is not None:
                    self._busy += ratio * seconds
                    self._covered += seconds
            self._note(monotonic_seconds, ratio)
            self._newest_at = monotonic_seconds
            self._sampled = True
        silent = self._newest_at is None or monotonic_seconds - self._newest_at > STALE_SECONDS
        if self._sampled and silent:
            self._sampled = False
            self._last_poll_at = None

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
        self._last_poll_at = monotonic_seconds
        self._note(monotonic_seconds, ratio)

    def _note(self, monotonic_seconds: float, ratio: float) -> None:
        self._newest = ratio
        self._history.append((monotonic_seconds, ratio))

    @property
    def quiet(self) -> bool:
        """True if nothing but zeros was seen in the last ten seconds."""
        return not any(ratio for _, ratio in self._history)

    def close(
        self, monotonic_seconds: float, stamp_seconds: float
    ) -> tuple[float, float, float] | None:
        """End the interval; return (mean ratio, upper ratio, seconds that the mean covers).

        `stamp_seconds` is now on the driver's clock. The upper ratio counts the time since the
        last sample as busy unless the last ten seconds were all zero; without samples it is the
        highest poll of the last ten seconds. None if nothing was ever read.
        """
        horizon = monotonic_seconds - HISTORY_SECONDS
        while self._history and self._history[0][0] < horizon:
            self._history.popleft()
        started = self._closed_at
        busy, covered, unknown = self._busy, self._covered, self._unknown
        self._closed_at = monotonic_seconds
        self._busy = self._covered = self._unknown = 0.0
        if self._newest is None or not self._history:
            return None
        ratio = busy / covered if covered > 0 else self._newest
        highest = max(value for _, value in self._history)
        if not self._sampled or started is None:
            return ratio, min(1.0, max(highest, ratio) + ROUNDING_MARGIN), covered
        length = monotonic_seconds - started
        if not self.quiet:
            unknown += self._since_last_sample(stamp_seconds)
        bound = (busy + unknown) / length if length > 0 else 1.0
        return ratio, min(1.0, max(bound, ratio) + ROUNDING_MARGIN), covered

    def _since_last_sample(self, stamp_seconds: float) -> float:
        """Return the time that no sample covers yet; one period if the clocks do not agree."""
        if self._last_stamp is None:
            return self._period
        age = stamp_seconds - self._last_stamp
        return age if 0.0 <= age <= STALE_SECONDS else self._period


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
