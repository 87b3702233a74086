# SPDX-License-Identifier: Apache-2.0
"""The last ten seconds of a GPU that is only estimated, as its power is looked at.

Power sensors do not see all of the time, and utilization lags behind by up to a second: means of a
single interval do not belong together, those of ten seconds nearly do. The window slides. It is the
one of `recent.RecentWindow`, once there are so many seconds without a gap, each with energy,
utilization and clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from exporter.derive.interval_bounds import UTILIZATION_MARGIN_RATIO
from exporter.derive.power import PowerMeans
from exporter.derive.units import cut
from exporter.model.reading import Device, Reading
from exporter.model.snapshot import Bounds
from exporter.publisher.recent import Settled, reach_seconds

SAMPLE_SECONDS = 1.0
"""The driver's utilization is of up to so long before it is read."""
CLOCK_MARGIN_RATIO = 0.05
"""How far the clock may go beyond all that was seen of it, between two polls."""
LEAST_POLLS = 5
MOSTLY_BUSY_RATIO = 0.5
"""A GPU that ran for so much of the window was running at one of its polls: ten of them miss it
once in a thousand windows, five once in 32."""
STEADY_POWER_RATIO = 0.1
STEADY_UTILIZATION_RATIO = 0.05
"""In a steady window no interval is further from its mean. Energy and utilization of an interval
are not of quite the same time, hence no less."""
MOST_OVER_LIMIT = 1.2
"""A board that draws more than this over its highest limit for ten seconds has a broken sensor."""
UNTRUE_CLOCK_REASONS = frozenset({"hw_slowdown", "hw_power_brake", "hw_thermal"})
"""While the hardware skips clock pulses, the clock that is read is not the one that works."""


class _Mark(NamedTuple):
    """A reading: sums since the first one, and what was seen in the interval that ends with it."""

    monotonic: float
    joules: float = 0.0
    settled: Settled = Settled()
    busy_seconds: float = 0.0
    """As sampled, less the rounding of the samples."""
    counted: float = 0.0
    """Of the work of each window until here, the part that the totals took, added up."""
    sampled_seconds: float = 0.0
    """Of the interval: by these the totals are added up."""
    polled_watts: float | None = None
    """Where the driver did not count the energy."""
    driver_joules: float | None = None
    """Its total, where it counts."""
    clock_hertz: Bounds = Bounds(0.0, 0.0)
    clock_is_true: bool = False


class PowerWindow:
    """The means of one share over the last ten seconds, in which its power shows what it did."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()

    def clear(self) -> None:
        """Begin anew with the next reading."""
        self._marks.clear()

    def add(
        self, reading: Reading, seconds: float, energy_joules: float | None
    ) -> PowerMeans | None:
        """Take the reading at the end of an interval, and return the means of the window.

        None until it is long enough. A gap (``seconds = 0``), or an interval of which energy,
        utilization or clock is not known, ends it.

        The totals take the window's certain work w_k, a lower bound of its true work W_k, by parts:
        p_k w_k at the k-th reading. A moment lies in several windows. Its parts add up to 1 at
        most, because those at the beginning of a window, which were in the most windows before,
        do. So the sum of p_k w_k is at most that of p_k W_k, which is at most all of the work: each
        moment counts once.
        """
        marks, now = self._marks, reading.monotonic_seconds
        mark = _after(marks[-1], reading, seconds, energy_joules) if marks and seconds else None
        if mark is None:
            marks.clear()
            marks.append(_Mark(now, driver_joules=reading.vitals.energy_joules))
            return None
        marks.append(mark)
        reach = reach_seconds(seconds)
        while len(marks) > 2 and now - marks[1].monotonic >= reach:
            marks.popleft()
        length = now - marks[0].monotonic
        if length < reach:
            return None
        left = 1.0 - (mark.counted - marks[0].counted)
        part = max(0.0, min(mark.sampled_seconds / length, left))
        marks[-1] = mark._replace(counted=mark.counted + part)
        return _means(marks, reading.device, part * length)


def _after(
    last: _Mark, reading: Reading, seconds: float, energy_joules: float | None
) -> _Mark | None:
    """Return the mark of an interval after `last`; None if something of it is not known."""
    vitals, utilization = reading.vitals, reading.vitals.utilization
    clock, reasons = vitals.clock_hertz.get("sm"), vitals.throttle_reasons
    if energy_joules is None or utilization is None or not clock:
        return None
    if utilization.settled_ratio is None:
        utilization = replace(
            utilization,
            settled_ratio=utilization.upper_ratio,
            memory_settled_ratio=utilization.memory_upper_ratio,
        )
    seen = (utilization.ratio - UTILIZATION_MARGIN_RATIO) * utilization.seconds
    busy = vitals.busy_sm_clock_hertz or clock
    before, now = last.driver_joules, vitals.energy_joules
    counted = before is not None and now is not None and now >= before
    return _Mark(
        reading.monotonic_seconds,
        last.joules + energy_joules,
        last.settled.after(utilization, seconds),
        last.busy_seconds + max(0.0, seen),
        last.counted,
        utilization.seconds,
        None if counted else vitals.power_watts,
        vitals.energy_joules,
        # A poll may be of a pause, in which the clock may fall; a mean may hold such pauses.
        Bounds(busy, max(busy, clock)),
        reasons is not None and UNTRUE_CLOCK_REASONS.isdisjoint(reasons),
    )


def _means(marks: Iterable[_Mark], device: Device, counted_seconds: float) -> PowerMeans | None:
    """Return the means over these marks; None where the power is impossible or was polled too few
    times, or a busy clock is not known."""
    then, *later = marks
    now = later[-1]
    upper = now.settled.upper_since(then.settled)
    if upper is None:
        return None
    seconds = now.monotonic - then.monotonic
    runs = cut(upper.upper_ratio)
    sampled = (now.busy_seconds - then.busy_seconds - SAMPLE_SECONDS) / seconds
    utilization = Bounds(min(max(0.0, sampled), runs), runs)
    clock = _busy_clock(later, device.clock_max_hertz.get("sm"), utilization.lower)
    if clock is None:
        return None
    watts = (now.joules - then.joules) / seconds
    limit = device.power_max_limit_watts or device.power_default_limit_watts
    if limit and watts > MOST_OVER_LIMIT * limit:
        return None
    polls = [mark.polled_watts for mark in later if mark.polled_watts is not None]
    if polls and len(polls) < LEAST_POLLS:
        return None
    error = (max(polls) - min(polls)) / 2 if polls else 0.0
    return PowerMeans(
        power_watts=Bounds(watts - error, watts + error),
        utilization=utilization,
        memory_upper_ratio=upper.memory_upper_ratio,
        clock_hertz=clock,
        counted_seconds=counted_seconds,
        steady=_is_steady((then, *later), watts),
    )


def _is_steady(marks: Sequence[_Mark], watts: float) -> bool:
    """Return whether each interval drew about as much as the mean, and was about as busy."""
    used: list[float] = []
    for then, now in pairwise(marks):
        own = (now.joules - then.joules) / (now.monotonic - then.monotonic)
        if abs(own - watts) > STEADY_POWER_RATIO * watts or not now.sampled_seconds:
            return False
        used.append((now.busy_seconds - then.busy_seconds) / now.sampled_seconds)
    mean = fmean(used)
    return all(abs(own - mean) <= STEADY_UTILIZATION_RATIO for own in used)


def _busy_clock(marks: Sequence[_Mark], most: float | None, busy_ratio: float) -> Bounds | None:
    """Return the bounds of the SM clock while anything ran, in hertz.

    `most` is the device's highest clock, which few polls may have missed; None where that is not
    known either.
    """
    lowest = min(mark.clock_hertz.lower for mark in marks) * (1.0 - CLOCK_MARGIN_RATIO)
    seen = max(mark.clock_hertz.upper for mark in marks)
    enough = len(marks) >= LEAST_POLLS
    if not enough or not all(mark.clock_is_true for mark in marks):
        lowest = 0.0
    if not enough or busy_ratio < MOSTLY_BUSY_RATIO:
        return None if most is None else Bounds(lowest, max(seen, most))
    highest = seen * (1.0 + CLOCK_MARGIN_RATIO)
    return Bounds(lowest, highest if most is None else max(seen, min(highest, most)))
