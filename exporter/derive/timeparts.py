# SPDX-License-Identifier: Apache-2.0
"""Where the time of an interval went, as a partition into five parts, or as bounds of them."""

from __future__ import annotations

from exporter.derive.units import cut
from exporter.model.reading import Activity
from exporter.model.snapshot import Bounds, Saturation, TimeParts


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
