# SPDX-License-Identifier: Apache-2.0
"""What limited an interval, in one word of ``snapshot.LIMITERS``."""

from __future__ import annotations

from exporter.derive.links import LinkRates, dram_of_links
from exporter.derive.units import busiest_pipe, cut
from exporter.model.reading import Activity
from exporter.model.snapshot import Ceilings, Saturation, TimeParts

QUIET_RATIO = 0.05
"""Pipes and memory below this do not explain the time that was spent."""
BUSY_LINK_RATIO = 0.10
"""A link at this share of its peak does."""
ROUNDING_RATIO = 0.002
"""How far a link may be below that: its peak is a rounded figure."""
MOSTLY_IDLE_RATIO = 0.5
MOSTLY_STALLED_RATIO = 0.5


def limiter(
    parts: TimeParts,
    saturation: Saturation,
    activity: Activity | None = None,
    links: LinkRates | None = None,
    ceilings: Ceilings | None = None,
    dram_bandwidth: float | None = None,
    stall_of_idle: float | None = None,
) -> str:
    """Return the largest of idle, latency (= narrow + unsaturated), clock and saturated, refined.

    Idle becomes input if `stall_of_idle`, the part of the recent idle time in which the job waited
    for data, is at least half. Saturated becomes memory if DRAM is at least as active as every
    pipe, else compute. Latency, and what DRAM activity adds to clock and saturated, become
    communication if the GPU only communicates (`_communicates`). Of equal parts the first of idle,
    latency, clock, saturated is taken, because the earlier loss hides the later ones. `activity` is
    in shares of time, `dram_bandwidth` in bytes/s at the present clock.
    """
    largest, name = parts.idle, "idle"
    latency = parts.narrow + parts.unsaturated
    if latency > largest:
        largest, name = latency, "latency"
    if parts.clock > largest:
        largest, name = parts.clock, "clock"
    if parts.saturated > largest:
        name = "memory" if saturation.unit == "dram" else "compute"
    if name == "idle":
        return _idle(stall_of_idle)
    return "communication" if _communicates(activity, links, ceilings, dram_bandwidth) else name


def estimated_limiter(
    busy_ratio: float | None, *, throttled: bool, stall_of_idle: float | None = None
) -> str:
    """Return what limited an interval without time parts: idle, input, clock or unknown.

    `busy_ratio` is the engine activity, else the driver's utilization. Idle if 1 - busy_ratio >=
    0.5, which becomes input as in `limiter`; else clock while a throttle reason holds.
    """
    if busy_ratio is not None and 1.0 - busy_ratio >= MOSTLY_IDLE_RATIO:
        return _idle(stall_of_idle)
    return "clock" if throttled else "unknown"


def _idle(stall_of_idle: float | None) -> str:
    explained = stall_of_idle is not None and stall_of_idle >= MOSTLY_STALLED_RATIO
    return "input" if explained else "idle"


def _communicates(
    activity: Activity | None,
    links: LinkRates | None,
    ceilings: Ceilings | None,
    dram_bandwidth: float | None,
) -> bool:
    """Return whether a link is busy, and nothing else is.

    A link is busy from 10 % of its peak on, in its busier direction. Nothing else is if every pipe
    is below 5 %, and so is DRAM less what the traffic of the links costs there.
    """
    if activity is None or links is None or ceilings is None:
        return False
    if busiest_pipe(activity) >= QUIET_RATIO:
        return False
    implied = dram_of_links(links, dram_bandwidth)
    if cut(activity.dram or 0.0) - implied >= QUIET_RATIO:
        return False
    peaks = ceilings.link_bandwidth_bytes_per_second
    return any(
        rate is not None and peak and rate / peak >= BUSY_LINK_RATIO - ROUNDING_RATIO
        for rate, peak in ((links.nvlink, peaks.get("nvlink")), (links.pcie, peaks.get("pcie")))
    )
