# SPDX-License-Identifier: Apache-2.0
"""Where the time of an interval went: a partition into five parts, or bounds of each.

The bounds hold where not every unit was read. They are of the engine activity GR, the SM activity,
the saturation s, each unit that may give it, and that unit's clock over its reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from exporter.derive.clocks import Clocks, clock_ratio
from exporter.derive.saturation import unit_bounds
from exporter.derive.units import cut
from exporter.model.reading import Activity, Utilization
from exporter.model.snapshot import Bounds, Saturation, TimeParts

UTILIZATION_MARGIN_RATIO = 0.01
"""The driver's utilization is in whole percent."""

ANYTHING = Bounds(0.0, 1.0)


def time_parts(
    activity: Activity, saturation: Saturation, clock_ratio: float | None
) -> TimeParts | None:
    """Split an interval by what it lost; None unless the saturation is complete.

    With GR = engine active, SM = SM active, s = saturation, M = max(SM, s), G = max(GR, M):

        idle        = 1 - G          nothing resident
        narrow      = G - M          kernels too small for all SMs, tails
        unsaturated = M - s          SMs occupied, no unit at its limit
        clock       = s (1 - r)      lost to a clock below the unit's reference
        saturated   = s r

    all 0 to 1, adding up to 1. `clock_ratio` is r = min(1, f / f_ref) of the unit that gives s;
    where it is unknown while s > 0 the last two cannot be separated and there is no partition.
    The two maxima absorb what copy engines add to DRAM activity while no SM is active.
    """
    s = saturation.ratio
    if s is None or activity.engine is None or activity.sm is None:
        return None
    if clock_ratio is None:
        if s > 0.0:
            return None
        clock_ratio = 1.0
    m = max(cut(activity.sm), s)
    g = max(cut(activity.engine), m)
    saturated = s * clock_ratio
    return TimeParts(
        idle=1.0 - g,
        narrow=g - m,
        unsaturated=m - s,
        clock=s - saturated,
        saturated=saturated,
    )


def time_bounds(
    engine: Bounds, sm: Bounds, saturation: Bounds, clock_ratio: Bounds
) -> dict[str, Bounds]:
    """Return bounds of each of the parts of `time_parts`, by its name.

    GR, SM, s and r are known within bounds, and nothing is said of how they depend on each other.
    Each part rises with the one and falls with the other of the two that it is the difference of,
    so its ends are those of

        idle        = 1 - max(GR, SM, s)
        narrow      = max(0, GR - max(SM, s))
        unsaturated = max(0, SM - s)
        clock       = s (1 - r)
        saturated   = s r
    """
    s, r = saturation, clock_ratio
    m = Bounds(max(sm.lower, s.lower), max(sm.upper, s.upper))
    g = Bounds(max(engine.lower, m.lower), max(engine.upper, m.upper))
    return {
        "idle": Bounds(1.0 - g.upper, 1.0 - g.lower),
        "narrow": _difference(engine, m),
        "unsaturated": _difference(sm, s),
        "clock": Bounds(s.lower * (1.0 - r.upper), s.upper * (1.0 - r.lower)),
        "saturated": Bounds(s.lower * r.lower, s.upper * r.upper),
    }


def _difference(of: Bounds, less: Bounds) -> Bounds:
    return Bounds(max(0.0, of.lower - less.upper), max(0.0, of.upper - less.lower))


@dataclass(frozen=True, slots=True)
class Known:
    """Bounds of one interval, all as shares of its time."""

    engine: Bounds
    sm: Bounds
    saturation: Bounds
    units: Mapping[str, Bounds]
    clock_ratio: Bounds
    """Of the unit that gives the saturation: min(1, f / f_ref)."""

    @property
    def time_parts(self) -> dict[str, Bounds]:
        """Bounds of the time parts, by name."""
        return time_bounds(self.engine, self.sm, self.saturation, self.clock_ratio)


def known_by_counters(
    activity: Activity,
    saturation: Saturation,
    clocks: Clocks,
    utilization: Utilization | None,
    compute_capability: tuple[int, int] | None,
) -> Known:
    """Return the bounds by counters that are incomplete; `activity` is in shares of time.

    The engine activity, else `utilization`, is at least that of any unit.
    """
    units = unit_bounds(activity, saturation, compute_capability)
    if activity.sm is None:
        sm = saturation.unmeasured.get("sm", ANYTHING)
    else:
        sm = Bounds(cut(activity.sm), cut(activity.sm))
    if activity.engine is not None:
        engine = Bounds(cut(activity.engine), cut(activity.engine))
    else:
        engine = ANYTHING if utilization is None else _engine(utilization)
    least = max(sm.lower, saturation.bounds.lower)
    engine = Bounds(max(engine.lower, least), max(engine.upper, least))
    ratio = _clock_ratio(units, saturation, clocks, clocks)
    return Known(engine, sm, saturation.bounds, units, ratio)


def known_by_utilization(utilization: Utilization, saturation: Saturation, clocks: Clocks) -> Known:
    """Return the bounds by utilization, with an estimated `saturation` that agrees with it.

    An SM clock that is not sampled over the busy time is anything up to the highest one of the
    device; the memory clock was between the one at the end and its reference.
    """
    units = {name: unit for name, unit in saturation.unmeasured.items() if name != "sm"}
    least, most = clocks, replace(clocks, memory=clocks.memory_reference)
    if clocks.sm_busy is None:
        least = replace(least, sm=0.0)
        most = replace(most, sm=max(clocks.sm or 0.0, clocks.sm_max or 0.0) or None)
    ratio = _clock_ratio(units, saturation, least, most)
    sm = saturation.unmeasured["sm"]
    return Known(_engine(utilization), sm, saturation.bounds, units, ratio)


def observed(utilization: Utilization) -> Utilization:
    """Return the utilization with bounds for the time that was observed alone, to integrate."""
    ratio, memory = utilization.ratio, utilization.memory_ratio
    return replace(
        utilization,
        upper_ratio=min(1.0, ratio + UTILIZATION_MARGIN_RATIO),
        lower_ratio=max(0.0, ratio - UTILIZATION_MARGIN_RATIO),
        memory_upper_ratio=None if memory is None else min(1.0, memory + UTILIZATION_MARGIN_RATIO),
    )


def _engine(utilization: Utilization) -> Bounds:
    upper = cut(utilization.upper_ratio)
    return Bounds(min(cut(utilization.lower_ratio), upper), upper)


def _clock_ratio(
    units: Mapping[str, Bounds], saturation: Saturation, least: Clocks, most: Clocks
) -> Bounds:
    """Return the bounds of the clock ratio of whichever unit gives the saturation."""
    found = [name for name, unit in units.items() if unit.upper >= saturation.bounds.lower]
    highest = [clock_ratio(name, most) for name in found]
    return Bounds(
        min((clock_ratio(name, least) or 0.0 for name in found), default=0.0),
        max((1.0 if ratio is None else ratio for ratio in highest), default=1.0),
    )
