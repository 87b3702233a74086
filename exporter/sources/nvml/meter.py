# SPDX-License-Identifier: Apache-2.0
"""Utilization over an interval, and bounds of the true value, from samples or polls.

The driver's sample buffer holds one mean per sampling period (1/6 s to 1 s, by GPU model), stamped
at the period's end, so consecutive samples cover time without gaps: their weighted mean is exact
for the time that they cover. A poll (``nvmlDeviceGetUtilizationRates``) covers only the last
period. In the upper bound all time that is not covered counts as busy, in the lower one as idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from exporter.sources.nvml.polls import (
    LONGEST_PERIOD_SECONDS,
    SHORTEST_PERIOD_SECONDS,
    PollTrack,
    Silences,
)

ROUNDING_MARGIN = 0.01
"""The driver reports whole percents; whether rounded or cut is not documented."""
STALE_SECONDS = 3.0
"""How long the last value is used; three intervals if that is more."""
STALE_INTERVALS = 3
HOLE_FACTOR = 1.5
"""A gap longer than its neighbours by this factor means that samples are missing."""


class Closed(NamedTuple):
    """One utilization of one interval."""

    ratio: float
    """Mean over `seconds`."""
    upper_ratio: float
    """The mean over the interval is not above this."""
    seconds: float
    """The time that `ratio` covers."""
    settled_ratio: float | None = None
    """The part of the bound that is final, not cut to 1; None at first."""
    open_ratio: float | None = None
    """The rest: the time at the end that no sample covers yet."""
    lower_ratio: float = 0.0
    """The mean over the interval is not below this."""


class UtilizationMeter:
    """One utilization (compute or memory) of one GPU between reads."""

    def __init__(self) -> None:
        self._polls = PollTrack()
        self._silences = Silences()
        self._last_stamp: float | None = None
        self._sampled_at = float("-inf")
        """Monotonic time to which the last sample reaches."""
        self.clocks_agree = False
        """Whether the driver's stamps have been seen to be of our clock."""
        self._step = 0.0
        """How far that was set since the last sample, in seconds."""
        self._read_at = float("-inf")
        self._counted_after = 0.0
        """How far the time after the last sample has been counted without samples, in seconds."""
        self._gap = self._period = LONGEST_PERIOD_SECONDS
        self._newest: float | None = None
        self._noted_at = float("-inf")
        self._closed_at: float | None = None
        self._ahead = 0.0
        """How far the samples of the last interval reach into this one, in seconds."""
        self._left_open = LONGEST_PERIOD_SECONDS
        """How much time before this interval the next samples or polls may be of, in seconds."""
        self._rested = self._samples_idle = False
        """Whether the last sample was zero, and whether ever two in a row were: then the driver
        takes samples while nothing runs, and the time between two is the period of the later."""
        self._clear()

    def _clear(self) -> None:
        self._busy = self._covered = self._possible = self._rounding = self._certain = 0.0
        self._highest = 0.0

    @property
    def sampled(self) -> bool:
        """True once the buffer has answered."""
        return self._last_stamp is not None

    @property
    def wants_polls(self) -> bool:
        """True while the buffer has no sample where one is due."""
        overdue = self._read_at - self._sampled_at > HOLE_FACTOR * self._period
        return not self.sampled or overdue

    @property
    def wants_burst(self) -> bool:
        """True while polls between two rounds are needed: without a buffer, or while the meaning of
        its gaps is not known."""
        silences = self._silences
        unknown = self.wants_polls and not silences.mean_idle
        return not self.sampled or unknown or silences.unclear(self._read_at)

    def follow_clock(self, step_seconds: float) -> None:
        """Follow our clock, which stamps are of: it was set, or went on while the host slept."""
        self._step += step_seconds

    def add_samples(
        self,
        samples: Sequence[tuple[float, float]],
        monotonic_seconds: float,
        stamp_seconds: float,
    ) -> None:
        """Take new samples: (the driver's stamp in seconds, ratio), oldest first. `stamp_seconds`
        is now on the driver's clock."""
        self._read_at = monotonic_seconds
        if self._step and samples:
            samples = self._follow(samples)
        last = self._last_stamp
        new = [sample for sample in samples if last is None or sample[0] > last]
        if not new:
            return
        if last is None and self._closed_at is not None:
            # Polls may have counted the time of these samples.
            self._possible += monotonic_seconds - self._closed_at
            self._certain = 0.0
        counts = last is not None and self._closed_at is not None
        for stamp, ratio in new:
            self._add_sample(stamp, ratio, counts=counts)
        self._note(new[-1][1], monotonic_seconds)
        self._highest = max(self._highest, max(ratio for _, ratio in new))
        self._polls.end()
        self._sampled_at = monotonic_seconds - self._age(stamp_seconds - new[-1][0])

    def _follow(self, samples: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
        """Return samples on the clock as it is set now, and take the last stamp there.

        After a step forward, what was sampled before it is not newer than that.
        """
        last, step, self._step = self._last_stamp, self._step, 0.0
        if last is None:
            return samples
        self._last_stamp = last + step
        return [
            (stamp + step if last < stamp <= last + step else stamp, ratio)
            for stamp, ratio in samples
        ]

    def _age(self, by_stamp: float) -> float:
        """Return the age of the last sample; one period if the driver's clock differs from ours."""
        if abs(by_stamp) <= STALE_SECONDS:
            self.clocks_agree = True
        elif by_stamp < 0 or not self.clocks_agree:
            return self._period
        return by_stamp

    def _add_sample(self, stamp: float, ratio: float, *, counts: bool) -> None:
        """Add one sample: its own period, and the gap before it."""
        gap = own = self._period
        if self._last_stamp is not None:
            gap = stamp - self._last_stamp
            usual = self._period if self._silences.mean_idle else self._gap
            if gap <= HOLE_FACTOR * min(usual, LONGEST_PERIOD_SECONDS):
                self._period = own = gap
            else:
                # Between two samples that are far apart, only the last one's period is known.
                own = min(gap, self._period)
            self._gap = gap
        self._last_stamp = stamp
        between = gap - own
        seen, hole = own, between
        if self._counted_after:  # late samples may cover time that polls have counted
            free = max(0.0, gap - self._counted_after)
            seen, hole = min(own, free), max(0.0, free - own)
            self._counted_after = max(0.0, self._counted_after - gap)
        self._silences.resumed(between, self._read_at)
        self._samples_idle |= self._rested and ratio == 0.0
        self._rested = ratio == 0.0
        if not counts:
            return
        # The part of its period counted before was idle: the work lies in the rest.
        worked = min(ratio * own, seen)
        self._busy += worked
        self._covered += seen
        self._possible += ratio * own - worked
        self._rounding += own
        known = own if self._samples_idle else min(own, SHORTEST_PERIOD_SECONDS)
        # The part of its period counted before may hold all of the work.
        self._certain += max(0.0, (ratio - ROUNDING_MARGIN) * known - (own - seen))
        if hole and self._silences.mean_idle:
            self._covered += hole
            self._rounding += hole
        else:
            self._possible += hole

    def add_poll(self, ratio: float, monotonic_seconds: float, *, rare: bool = False) -> None:
        """Take one poll, which counts as in `PollTrack`.

        A `rare` one, the only one of its interval by choice, counts for the whole interval, so that
        all time has the same weight. While a buffer is silent a poll shows what the silence means,
        and counts only as long as that is not known.
        """
        counts = SHORTEST_PERIOD_SECONDS
        if rare and self._closed_at is not None:
            counts = max(counts, monotonic_seconds - self._closed_at)
        step = self._polls.add(ratio, monotonic_seconds, counts)
        seen = step.seen_seconds
        possible = step.highest_busy_seconds
        if self.sampled:
            age = monotonic_seconds - self._sampled_at
            if age <= HOLE_FACTOR * self._period:
                return
            self._silences.poll(ratio, age)
            if self._silences.understood:
                return
            # A poll may show the whole period before the present one.
            reach = age - self._period
            uncounted = max(0.0, reach - self._counted_after)
            seen = min(seen if step.seconds else SHORTEST_PERIOD_SECONDS, uncounted)
            possible += max(0.0, uncounted - step.seconds)
            self._counted_after = max(reach, self._counted_after)
        self._note(ratio, monotonic_seconds)
        if self._closed_at is not None:
            self._busy += ratio * seen
            self._covered += seen
            self._possible += max(0.0, possible - ratio * seen)
            self._rounding += step.seconds
            if not self.sampled:
                rounding = ROUNDING_MARGIN * step.seconds
                self._certain += max(0.0, step.lowest_busy_seconds - rounding)

    def _note(self, ratio: float, monotonic_seconds: float) -> None:
        self._newest, self._noted_at = ratio, monotonic_seconds
        self._highest = max(self._highest, ratio)

    def close(self, monotonic_seconds: float) -> Closed | None:
        """End the interval; return its utilization, None if nothing was read for three, or 3 s.

        The upper ratio counts the busy time, 0.01 of the other known time, and all unknown time;
        the lower one the busy time less 0.01 of the known, and what may lie outside the interval.
        """
        length = 0.0 if self._closed_at is None else monotonic_seconds - self._closed_at
        if self.sampled and length:
            self._count_idle_silence(monotonic_seconds)
        # Half an interval less, so that jitter does not move it from the third close.
        stale = max(STALE_SECONDS, STALE_INTERVALS * length) - min(length, 1.0) / 2
        result = None
        open_end = self._open_end(monotonic_seconds)
        ahead = min(max(0.0, self._sampled_at - monotonic_seconds), STALE_SECONDS)
        if self._newest is not None and monotonic_seconds - self._noted_at < stale:
            ratio = self._busy / self._covered if self._covered > 0 else self._newest
            settled = open_ratio = None
            bound = 1.0
            if length and open_end is not None:
                rounding = ROUNDING_MARGIN * self._rounding
                settled = (self._busy + self._possible + rounding + self._ahead) / length
                open_ratio = open_end / length
                bound = settled + open_ratio
            elif self.sampled and not length:
                bound = self._highest + ROUNDING_MARGIN
            upper = min(1.0, max(bound, ratio + ROUNDING_MARGIN))
            certain = self._certain - self._left_open - ahead
            lower = min(max(0.0, certain) / length, ratio) if length else 0.0
            result = Closed(ratio, upper, self._covered, settled, open_ratio, lower)
        self._closed_at = monotonic_seconds
        self._ahead = ahead
        self._left_open = LONGEST_PERIOD_SECONDS if open_end is None else open_end
        self._clear()
        return result

    def _count_idle_silence(self, monotonic_seconds: float) -> None:
        """Count a gap that means idle, except for the time in which a sample may be due."""
        if not self._silences.idle_now:
            return
        idle_until = monotonic_seconds - self._sampled_at - HOLE_FACTOR * self._period
        idle = idle_until - self._counted_after
        if idle > 0:
            self._counted_after = idle_until
            self._covered += idle
            self._rounding += idle
            self._note(0.0, monotonic_seconds)

    def _open_end(self, monotonic_seconds: float) -> float | None:
        """Return how many seconds until now are not known yet; None if none are known."""
        polled_at = self._polls.last_at
        if not self.sampled:
            if polled_at is None:
                return None
            return monotonic_seconds - polled_at + self._polls.longest_period_seconds
        end = max(0.0, monotonic_seconds - self._sampled_at - self._counted_after)
        if polled_at is not None and self._counted_after and not self._silences.understood:
            end += max(0.0, self._polls.longest_period_seconds - self._period)
        return end


def busy_mean(
    values: Iterable[tuple[float, float]], weights: Iterable[tuple[float, float]]
) -> float | None:
    """Return the mean of `values`, each weighted by the utilization sampled nearest to it, or the
    plain one without any busy sample. Both are (stamp, value), oldest first."""
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
