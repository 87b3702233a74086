# SPDX-License-Identifier: Apache-2.0
"""Which clock each unit ran at, and at which clock its datasheet peak holds.

All of this room takes its clocks from here, so that a ratio of clocks means the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.model.reading import Activity, Device, Vitals
from exporter.model.snapshot import PEAK_CLOCKS, Ceilings

HIGHEST_COUNTED = 2.0
"""A counted clock may be this many times the highest clock of a GPU: both are measured."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks of one interval and the reference clocks of the units, in hertz."""

    sm: float | None = None
    memory: float | None = None
    sm_is_busy_mean: bool = False
    """True where `sm` is an average over the busy time, not one sample."""
    sm_max: float | None = None
    tensor_reference: float | None = None
    vector_reference: float | None = None
    memory_reference: float | None = None

    def ratio(self, unit: str) -> float | None:
        """Return f / f_ref of a unit (tensor, fp64, fma, int, dram); above 1 at a higher clock."""
        if unit == "dram":
            clock, reference = self.memory, self.memory_reference
        elif unit == "tensor":
            clock, reference = self.sm, self.tensor_reference
        else:
            clock, reference = self.sm, self.vector_reference
        if clock is None or not reference:
            return None
        return clock / reference


def reference_clock(unit: str, ceilings: Ceilings | None, device: Device) -> float | None:
    """Return the clock in hertz at which `unit` reaches its spec peak; None where it is not known.

    Hopper's datasheets mix clocks (H100 SXM: tensor peaks at 1830 MHz, vector peaks at 1980 MHz),
    hence one clock per unit. A GPU model without a published tensor clock is held to its vector
    clock, and one without any to the maximum that the driver reports.
    """
    if ceilings is not None:
        for name in PEAK_CLOCKS[unit]:
            hertz = ceilings.peak_clock_hertz.get(name)
            if hertz:
                return hertz
    return device.clock_max_hertz.get("memory" if unit == "dram" else "sm")


def read_clocks(vitals: Vitals, ceilings: Ceilings | None, device: Device) -> Clocks:
    """Return the clocks of an interval; the SM clock is the mean over busy time, else the last."""
    busy = vitals.busy_sm_clock_hertz
    return Clocks(
        sm=vitals.clock_hertz.get("sm") if busy is None else busy,
        memory=vitals.clock_hertz.get("memory"),
        sm_is_busy_mean=busy is not None,
        sm_max=device.clock_max_hertz.get("sm"),
        tensor_reference=reference_clock("tensor", ceilings, device),
        vector_reference=reference_clock("fma", ceilings, device),
        memory_reference=reference_clock("dram", ceilings, device),
    )


def counted_clocks(clocks: Clocks, activity: Activity, sm_count: int | None) -> Clocks:
    """Return the same clocks, with the SM clock from counted cycles where the driver counts them.

    f = cycles of one SM / seconds, so that activity x f x seconds is a count of active cycles and
    no clock sample enters. The driver does not document whether it counts the cycles of one SM or
    the sum over all. Of the two, the one whose clock is nearer (in log space) to the sampled clock
    is taken. Any clock between the sample and the maximum of the device counts as equally near,
    because the sample may have been taken in a pause. A clock far above that maximum is a wrong
    count and is ignored.
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
    return Clocks(
        sm=counted,
        memory=clocks.memory,
        sm_is_busy_mean=clocks.sm_is_busy_mean,
        sm_max=clocks.sm_max,
        tensor_reference=clocks.tensor_reference,
        vector_reference=clocks.vector_reference,
        memory_reference=clocks.memory_reference,
    )


def clock_ratio(unit: str | None, clocks: Clocks) -> float | None:
    """Return r = min(1, f / f_ref): the share of a unit's peak rate that the clock allows."""
    ratio = None if unit is None else clocks.ratio(unit)
    return None if ratio is None else min(1.0, ratio)
