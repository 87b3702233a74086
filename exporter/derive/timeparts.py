# SPDX-License-Identifier: Apache-2.0
"""Where the time of an interval went, as a partition into five parts."""

from __future__ import annotations

from exporter.derive.units import cut
from exporter.model.reading import Activity
from exporter.model.snapshot import Saturation, TimeParts


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
