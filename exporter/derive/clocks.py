# SPDX-License-Identifier: Apache-2.0
"""Which clock each unit ran at, and at which clock its datasheet peak holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from exporter.derive.cycles import busiest, highest_mean_clock, possible_mean_clock, shows_cycles
from exporter.derive.history import NO_HISTORY, ClockHistory
from exporter.derive.units import cut
from exporter.model.reading import Activity, Device, Vitals
from exporter.model.snapshot import PEAK_CLOCKS, Ceilings

BUSY_RATIO = 0.99
"""A GPU whose engine is active for so long does not lower its clock for idle time."""
HIGHEST_COUNTED = 2.0
"""A counted clock may be this many times the highest clock of a GPU: both are measured."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks of one interval and the reference clocks of the units, in hertz."""

    sm: float | None = None
    """The mean over the whole interval, idle time included: what shares of cycles refer to."""
    memory: float | None = None
    sm_busy: float | None = None
    """The mean over the busy time; None where that is not known."""
    sm_max: float | None = None
    sm_lowest: float | None = None
    """What `sm` is at least, where it is only polled; None where it is measured."""
    sm_highest: float | None = None
    tensor_reference: float | None = None
    vector_reference: float | None = None
    memory_reference: float | None = None

    @property
    def lowest_ratio(self) -> float:
        """Lower bound of the mean SM clock, over `sm`: 1 where `sm` is measured."""
        return 1.0 if not self.sm or self.sm_lowest is None else self.sm_lowest / self.sm

    @property
    def highest_ratio(self) -> float:
        """Upper bound of the mean SM clock, over `sm`."""
        return 1.0 if not self.sm or self.sm_highest is None else self.sm_highest / self.sm

    def ratio(self, unit: str, *, busy: bool = False) -> float | None:
        """Return f / f_ref of a unit (tensor, fp64, fma, int, dram), if known that of busy time."""
        sm = self.sm_busy if busy and self.sm_busy is not None else self.sm
        if unit == "dram":
            clock, reference = self.memory, self.memory_reference
        elif unit == "tensor":
            clock, reference = sm, self.tensor_reference
        else:
            clock, reference = sm, self.vector_reference
        if clock is None or not reference:
            return None
        return clock / reference


def reference_clock(unit: str, ceilings: Ceilings | None, device: Device) -> float | None:
    """Return the clock in hertz at which `unit` reaches its spec peak; None where it is not known.

    Hopper's datasheets have tensor peaks at 1830 MHz, vector peaks at 1980 MHz (H100 SXM). Without
    a tensor clock the vector clock counts, and without any the maximum that the driver reports.
    """
    if ceilings is not None:
        for name in PEAK_CLOCKS[unit]:
            hertz = ceilings.peak_clock_hertz.get(name)
            if hertz:
                return hertz
    return device.clock_max_hertz.get("memory" if unit == "dram" else "sm")


def read_clocks(
    vitals: Vitals,
    ceilings: Ceilings | None,
    device: Device,
    history: ClockHistory = NO_HISTORY,
    activity: Activity | None = None,
) -> Clocks:
    """Return the clocks of an interval with this activity, its samples in `history`.

    The mean SM clock is that of the driver's samples, else the clock at the end of the interval,
    as far as the shares of cycles allow it. No clock is above the highest one of the device, unless
    the driver says so. Of a clock that is only polled the mean is at least its busy time's part.
    """
    now, highest = vitals.clock_hertz.get("sm"), device.clock_max_hertz.get("sm")
    mean = history.mean_clock(None if activity is None else activity.engine, now)
    busy = vitals.busy_sm_clock_hertz if history.busy_clock is None else history.busy_clock
    least = most = None
    seen = [clock for clock in (now, highest, *history.newest_clocks) if clock is not None]
    if seen:
        mean = None if mean is None else min(mean, max(seen))
        busy = None if busy is None else min(busy, max(seen))
        if mean is not None and activity is not None:
            lowest = 0.0 if now is None or history.newest_clocks else now
            mean = possible_mean_clock(mean, activity, lowest, max(seen))
            engine = activity.engine
            if history.busy_clock is None and engine is not None and engine < BUSY_RATIO:
                least = cut(engine) * mean
                most = max(mean, highest_mean_clock(activity, max(seen)))
    return Clocks(
        sm=mean,
        memory=vitals.clock_hertz.get("memory"),
        sm_busy=busy,
        sm_max=highest,
        sm_lowest=least,
        sm_highest=most,
        tensor_reference=reference_clock("tensor", ceilings, device),
        vector_reference=reference_clock("fma", ceilings, device),
        memory_reference=reference_clock("dram", ceilings, device),
    )


def counted_clocks(clocks: Clocks, activity: Activity, sm_count: int | None) -> Clocks:
    """Return the same clocks, with the mean SM clock from the cycles that the driver counted.

    f = cycles of one SM / seconds. The driver does not document whether it counts the cycles of one
    SM or the sum over all: the one whose clock is nearer (in log space) to the sampled clock is
    taken. Any clock from the sample to the device's maximum counts as equally near, because the
    sample may be from a pause. A clock far above that maximum is a wrong count and is ignored.
    """
    cycles = activity.elapsed_cycles
    expected = clocks.sm or clocks.vector_reference
    if not cycles or cycles < 0 or not sm_count or not expected or activity.seconds <= 0:
        return clocks
    one = cycles / activity.seconds
    summed = one / sm_count
    highest = max(expected, clocks.sm_max or 0.0)
    off_one = max(expected / one, one / highest, 1.0)
    off_summed = max(expected / summed, summed / highest, 1.0)
    counted = one if off_one <= off_summed else summed
    known = [clock for clock in (clocks.sm_max, clocks.vector_reference) if clock is not None]
    if known and counted > HIGHEST_COUNTED * max(expected, *known):
        return clocks
    return replace(clocks, sm=counted, sm_lowest=None, sm_highest=None)


def busy_clocks(clocks: Clocks, activity: Activity, polled: float | None) -> Clocks:
    """Return the same clocks, with a clock of the busy time that agrees with the counters.

    The samples' busy clock, else the one `polled` at the end if that is above the mean. Where the
    counters show that they count cycles it is at least f x SM / GR, because no SM is active without
    the engine. Always f = GR x f_busy + (1 - GR) x f_idle, with f_idle from 0 to the highest clock.
    """
    mean = clocks.sm
    if mean is None:
        return clocks
    busy = clocks.sm_busy
    if busy is None:
        busy = mean if polled is None else max(mean, polled)
    engine = cut(activity.engine or 0.0)
    if engine:
        highest = max(mean, busy, clocks.sm_max or 0.0)
        if shows_cycles(activity):
            busy = max(busy, min(mean * busiest(activity) / engine, highest))
        busy = min(max(busy, (mean - (1.0 - engine) * highest) / engine), mean / engine)
    return replace(clocks, sm_busy=busy)


def clock_ratio(unit: str | None, clocks: Clocks) -> float | None:
    """Return r = min(1, f_busy / f_ref): the share of a unit's peak rate that the clock allows."""
    ratio = None if unit is None else clocks.ratio(unit, busy=True)
    return None if ratio is None else min(1.0, ratio)
