# SPDX-License-Identifier: Apache-2.0
"""The last clock samples of a share, and whether its counters count cycles or time.

The driver samples utilization u and SM clock c together, each sample a mean over 1/6 to 1 s. These
samples do not end where the interval of the counters ends, and a short interval has none. A GPU
that lowers its clock while it is idle, or while it works (power), mixes two clocks, so that c is a
line in u:

    c(u) = c_idle + u x (c_busy - c_idle)         slope = cov(u, c) / var(u), over the last seconds

By it the clock of the samples is carried over to the counters' own interval, whose engine activity
is known exactly. Where the clock does not follow the utilization the slope is 0, and the mean of
the samples is the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp

from exporter.derive.units import cut
from exporter.model.reading import Vitals

MEMORY_SECONDS = 10.0
"""What lies so far back counts 1/e of what is new."""
LEAST_VARIANCE = 1e-3
"""Utilizations nearer to each other than this (3 points) show no slope."""
NEAR_RATIO = 0.1
"""Without a slope, the last samples stand for an interval of such an activity."""
LONGEST_SILENCE_SECONDS = 3.0
"""Clock samples older than this say nothing of the clock now."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Sums over clock samples: seconds, and seconds x utilization (u), clock (c), u c and u^2."""

    seconds: float = 0.0
    u: float = 0.0
    c: float = 0.0
    uc: float = 0.0
    uu: float = 0.0

    def plus(self, other: Sampled, kept: float = 1.0) -> Sampled:
        """Return the sums with those of `other`, after `kept` of these."""
        return Sampled(
            self.seconds * kept + other.seconds,
            self.u * kept + other.u,
            self.c * kept + other.c,
            self.uc * kept + other.uc,
            self.uu * kept + other.uu,
        )

    @property
    def utilization(self) -> float:
        """The mean utilization; there must be samples."""
        return self.u / self.seconds

    @property
    def clock(self) -> float:
        """The mean clock in hertz; there must be samples."""
        return self.c / self.seconds

    @property
    def busy_clock(self) -> float:
        """The mean clock of the busy time in hertz; the mean clock where nothing was busy."""
        return self.uc / self.u if self.u > 0.0 else self.clock


NOTHING_SAMPLED = Sampled()


def sampled(vitals: Vitals, seconds: float | None, engine: float | None) -> Sampled:
    """Return the clock samples of an interval; without a utilization of theirs they are held to be
    those of the `engine` activity."""
    mean, utilization = vitals.mean_sm_clock_hertz, vitals.utilization
    if mean is None:
        return NOTHING_SAMPLED
    busy = mean if vitals.busy_sm_clock_hertz is None else vitals.busy_sm_clock_hertz
    length = seconds or 1.0
    if utilization is None or not _paired(vitals):
        u = cut(engine or 0.0)
    else:
        length, u = utilization.seconds or length, cut(utilization.ratio)
    # One clock for all of the time: one sample, or a clock that does not move. Otherwise the
    # samples are taken to be busy or not, which makes the slope rather too small than too large.
    squared = u * u if busy == mean else u
    return Sampled(length, length * u, length * mean, length * u * busy, length * squared)


def _paired(vitals: Vitals) -> bool:
    """Return whether the utilization is that of the clock samples: of the first interval it is of
    the newest sample alone."""
    if vitals.utilization is None:
        return False
    one = vitals.busy_sm_clock_hertz == vitals.mean_sm_clock_hertz
    return vitals.utilization.seconds > 0.0 or one


@dataclass(frozen=True, slots=True)
class ClockHistory:
    """The clock samples and the engine activity of the last seconds of one share."""

    counts_cycles: bool = False
    past: Sampled = NOTHING_SAMPLED
    """Samples of the last seconds, older ones with less weight."""
    new: Sampled = NOTHING_SAMPLED
    """Those since the last interval of the counters."""
    newest: Sampled = NOTHING_SAMPLED
    """Those of the last interval that had any."""
    silent_seconds: float = 0.0
    engine: Sampled = field(default=NOTHING_SAMPLED)
    """Engine activity of the last seconds, as `u`."""

    def heard(
        self, vitals: Vitals, seconds: float | None, engine: float | None = None
    ) -> ClockHistory:
        """Return the history after a reading, `seconds` after the one before."""
        samples = sampled(vitals, seconds, engine)
        if not samples.seconds:
            return replace(self, silent_seconds=self.silent_seconds + (seconds or 0.0))
        new, past = self.new.plus(samples), self.past
        if _paired(vitals):
            past = past.plus(samples, exp(-samples.seconds / MEMORY_SECONDS))
        return replace(self, past=past, new=new, newest=new, silent_seconds=0.0)

    def measured(
        self, engine: float | None, seconds: float, *, counts_cycles: bool = False
    ) -> ClockHistory:
        """Return the history at the end of an interval of the counters with this activity, in which
        these showed that they count cycles, or did not."""
        active = self.engine
        if engine is not None:
            kept = exp(-seconds / MEMORY_SECONDS)
            active = active.plus(Sampled(seconds, seconds * engine), kept)
        counts_cycles = self.counts_cycles or counts_cycles
        return replace(self, new=NOTHING_SAMPLED, engine=active, counts_cycles=counts_cycles)

    @property
    def newest_clocks(self) -> tuple[float, ...]:
        """The clocks that the last samples show, in hertz."""
        return (self.newest.clock, self.newest.busy_clock) if self.newest.seconds else ()

    @property
    def slope(self) -> float | None:
        """Clock of busy time minus that of idle time in hertz; None where samples do not tell."""
        past = self.past
        if not past.seconds:
            return None
        variance = past.uu / past.seconds - past.utilization**2
        if variance < LEAST_VARIANCE:
            return None
        covariance = past.uc / past.seconds - past.utilization * past.clock
        return covariance / variance

    def mean_clock(self, engine: float | None, now: float | None) -> float | None:
        """Return the mean SM clock in hertz of an interval with this engine activity; without
        samples `now`, the clock as polled at its end."""
        samples = self.newest
        if not samples.seconds or self.silent_seconds > LONGEST_SILENCE_SECONDS:
            return now
        if engine is None or not self.past.u or not self.engine.u:
            u = samples.utilization if engine is None else engine
        else:
            # Gaps that are shorter than a sample lower the engine activity, not the utilization.
            usual = self.past.utilization / self.engine.utilization
            u = min(1.0, engine * max(1.0, usual))
        gap = u - samples.utilization
        slope = self.slope
        if slope is None and now is not None and abs(gap) > NEAR_RATIO:
            # The clock at the end is that of busy time where there was more of it, else of idle.
            slope = max(0.0, (now - samples.clock) / ((gap > 0.0) - samples.utilization))
        return max(self._lowest, samples.clock + (slope or 0.0) * gap)

    @property
    def _lowest(self) -> float:
        """The lower of the clocks of idle and of busy time in hertz, as far as they show."""
        samples, slope = self.newest, self.slope
        if slope is None:
            return 0.0
        ends = [samples.clock + slope * (u - samples.utilization) for u in (0.0, 1.0)]
        return max(0.0, min(ends))

    @property
    def busy_clock(self) -> float | None:
        """The SM clock of the busy time in hertz; None where it is not sampled."""
        samples, slope = self.newest, self.slope or 0.0
        if not samples.seconds or self.silent_seconds > LONGEST_SILENCE_SECONDS:
            return None
        # Samples that are busy for a part of their time know less of the busy clock than the line.
        line = samples.clock + slope * (1.0 - samples.utilization)
        if line <= 0.0:  # older samples were of another load: a fit means nothing
            return samples.busy_clock
        return max(samples.busy_clock, line) if slope >= 0.0 else min(samples.busy_clock, line)


NO_HISTORY = ClockHistory()
