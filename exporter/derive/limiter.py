# SPDX-License-Identifier: Apache-2.0
"""What limited an interval, in one word of ``snapshot.LIMITERS``."""

from __future__ import annotations

from exporter.derive.links import LinkRates
from exporter.model.snapshot import Ceilings, Saturation, TimeParts

QUIET_RATIO = 0.05
"""Pipes and memory below this do not explain the time that was spent."""
BUSY_LINK_RATIO = 0.10
"""A link above this share of its peak does."""
MOSTLY_IDLE_RATIO = 0.5
MOSTLY_STALLED_RATIO = 0.5


def limiter(
    parts: TimeParts,
    saturation: Saturation,
    links: LinkRates | None = None,
    ceilings: Ceilings | None = None,
    stall_of_idle: float | None = None,
) -> str:
    """Return the largest of idle, latency (= narrow + unsaturated), clock and saturated, refined.

    Idle becomes input if `stall_of_idle`, the part of the recent idle time in which the job waited
    for data, is at least half. Saturated becomes memory if DRAM is at least as active as every
    pipe, else compute. Latency becomes communication if pipes and DRAM are below 5 % while the
    busier direction of NVLink or PCIe is above 10 % of its peak. Of equal parts the first of idle,
    latency, clock, saturated is taken, because the earlier loss hides the later ones.
    """
    largest, name = parts.idle, "idle"
    latency = parts.narrow + parts.unsaturated
    if latency > largest:
        largest, name = latency, "latency"
    if parts.clock > largest:
        largest, name = parts.clock, "clock"
    if parts.saturated > largest:
        return "memory" if saturation.unit == "dram" else "compute"
    if name == "idle":
        return _idle(stall_of_idle)
    quiet = saturation.ratio is not None and saturation.ratio < QUIET_RATIO
    return "communication" if name == "latency" and quiet and _busy(links, ceilings) else name


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


def _busy(links: LinkRates | None, ceilings: Ceilings | None) -> bool:
    """Return whether NVLink or PCIe is above 10 % of its peak per direction."""
    if links is None or ceilings is None:
        return False
    peaks = ceilings.link_bandwidth_bytes_per_second
    for rate, peak in ((links.nvlink, peaks.get("nvlink")), (links.pcie, peaks.get("pcie"))):
        if rate is not None and peak and rate > BUSY_LINK_RATIO * peak:
            return True
    return False
