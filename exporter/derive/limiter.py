# SPDX-License-Identifier: Apache-2.0
"""What limited an interval, in one word of ``snapshot.LIMITERS``."""

from __future__ import annotations

from exporter.derive.links import LinkRates
from exporter.model.snapshot import Ceilings, Saturation, TimeParts

QUIET_RATIO = 0.05
"""Below this no pipe and no memory explains the time that was spent."""
BUSY_LINK_RATIO = 0.10
"""Above this share of its peak a link does."""
MOSTLY_IDLE_RATIO = 0.5
MOSTLY_STALLED_RATIO = 0.5


def limiter(
    parts: TimeParts,
    saturation: Saturation,
    links: LinkRates | None = None,
    ceilings: Ceilings | None = None,
    stall_of_idle: float | None = None,
) -> str:
    """The largest of idle, latency (= narrow + unsaturated), clock and saturated, refined.

    idle reads input if at least half of the GPU's idle time of late, `stall_of_idle`, is time in
    which its job waited for data. saturated reads memory if DRAM activity is not
    below any pipe's, else compute. latency reads communication if pipes and DRAM are below 5 %
    while the busier direction of NVLink or PCIe is above 10 % of its peak. Ties go to the first of
    idle, latency, clock, saturated: the loss that lies further out hides the others.
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
    """Without a partition of the time: idle, input, clock while a throttle reason holds, unknown.

    `busy_ratio` is the engine activity, else the driver's utilization; idle if 1 - it >= 0.5, and
    then input as in `limiter`.
    """
    if busy_ratio is not None and 1.0 - busy_ratio >= MOSTLY_IDLE_RATIO:
        return _idle(stall_of_idle)
    return "clock" if throttled else "unknown"


def _idle(stall_of_idle: float | None) -> str:
    explained = stall_of_idle is not None and stall_of_idle >= MOSTLY_STALLED_RATIO
    return "input" if explained else "idle"


def _busy(links: LinkRates | None, ceilings: Ceilings | None) -> bool:
    """Is NVLink or PCIe above 10 % of its peak per direction?"""
    if links is None or ceilings is None:
        return False
    peaks = ceilings.link_bandwidth_bytes_per_second
    for rate, peak in ((links.nvlink, peaks.get("nvlink")), (links.pcie, peaks.get("pcie"))):
        if rate is not None and peak and rate > BUSY_LINK_RATIO * peak:
            return True
    return False
