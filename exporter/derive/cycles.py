# SPDX-License-Identifier: Apache-2.0
"""From shares of cycles to shares of time.

The counters of SMs and pipes count active and elapsed cycles of the SM clock; engine activity is a
share of time. Where the clock falls while the GPU is idle, few cycles pass in the idle time, and
a unit that is active in half of the time is active in 85 % of the cycles (1980 and 345 MHz). With
f the mean clock of the interval and f_busy that of its busy time,

    share of time = share of cycles x f / f_busy

FLOPs need no such step: active cycles = share of cycles x f x seconds.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

from exporter.derive.units import RATIOS, cut, cut_activity
from exporter.model.reading import Activity

CYCLE_UNITS = tuple(unit for unit in RATIOS if unit not in ("engine", "occupancy", "dram"))
"""The fields of `Activity` that count cycles of the SM clock; an active one is within SM active."""
ROUNDING_RATIO = 0.01
"""SMs may be active for longer than the engine by this without meaning anything."""
LOWEST_CLOCK_RATIO = 0.04
"""No GPU lowers its clock further (B200: 120 of 1965 MHz). SMs that are active for more of the
cycles than that explains contradict the engine activity."""


_units = attrgetter(*CYCLE_UNITS)


def busiest(activity: Activity) -> float:
    """Return the largest share of cycles in which any unit of the SMs was active."""
    return cut(max([ratio for ratio in _units(activity) if ratio is not None], default=0.0))


def shows_cycles(activity: Activity) -> bool:
    """Return whether an interval shows that the counters count cycles, not time.

    They do where the driver counts them one by one, and where a unit of the SMs was active for
    longer than the engine that contains it, by more than rounding and less than a contradiction.
    """
    if activity.elapsed_cycles:
        return True
    if activity.engine is None:
        return False
    highest, engine = busiest(activity), cut(activity.engine)
    return highest > engine + ROUNDING_RATIO and engine >= LOWEST_CLOCK_RATIO * highest


def possible_mean_clock(
    mean: float, activity: Activity, lowest_clock: float, highest_clock: float
) -> float:
    """Return the mean clock in hertz, moved to where the shares of cycles allow it to be.

    No SM is active without the engine. So SM x f <= GR x f_busy, and the cycles without the engine
    are among those without an SM, (1 - GR) x f_idle <= (1 - SM) x f, both but for rounding.
    """
    if activity.engine is None:
        return mean
    engine, highest = cut(activity.engine), busiest(activity)
    if not engine + ROUNDING_RATIO < highest <= engine / LOWEST_CLOCK_RATIO:
        return mean
    idle = max(0.0, 1.0 - engine - ROUNDING_RATIO) * lowest_clock
    least = idle / (1.0 - highest + ROUNDING_RATIO)
    return min(max(mean, least), highest_mean_clock(activity, highest_clock))


def highest_mean_clock(activity: Activity, highest_clock: float) -> float:
    """Return the upper bound of the mean clock in hertz: SM x f <= GR x f_busy, rounded up."""
    if activity.engine is None:
        return highest_clock
    engine, highest = cut(activity.engine) + ROUNDING_RATIO, busiest(activity)
    return highest_clock if engine >= highest else engine * highest_clock / highest


def time_per_cycle(
    activity: Activity,
    mean_clock: float | None,
    busy_clock: float | None,
    *,
    counts_cycles: bool,
) -> float:
    """Return the factor from shares of cycles to shares of time.

    It is f / f_busy where both are known (above 1 where the clock falls under load), and at most
    what brings the busiest unit to the engine activity GR: no SM is active without the engine.
    """
    if activity.engine is None or not counts_cycles:
        return 1.0
    engine, highest = cut(activity.engine), busiest(activity)
    if engine < LOWEST_CLOCK_RATIO * highest:
        return 1.0
    factor = mean_clock / busy_clock if mean_clock and busy_clock else 1.0
    return min(factor, engine / highest) if highest else factor


def in_time(activity: Activity, factor: float) -> Activity:
    """Return the activity with the shares of cycles as shares of time, cut to 1."""
    within = cut_activity(activity)
    if factor == 1.0:
        return within
    units: dict[str, Any] = {
        unit: cut(ratio * factor)
        for unit in CYCLE_UNITS
        if (ratio := getattr(within, unit)) is not None
    }
    return replace(within, **units)


def in_cycles(activity: Activity, factor: float) -> Activity:
    """Return the activity with the engine's share of time as the largest share of cycles."""
    within = cut_activity(activity)
    if factor == 1.0 or not within.engine:
        return within
    return replace(within, engine=cut(within.engine / factor))
