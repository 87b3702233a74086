# SPDX-License-Identifier: Apache-2.0
"""What limited an interval, in one word of ``snapshot.LIMITERS``."""

from __future__ import annotations

from exporter.derive.links import LinkRates, dram_of_links
from exporter.derive.timeparts import Known
from exporter.derive.units import busiest_pipe, cut
from exporter.model.reading import Activity
from exporter.model.snapshot import Ceilings, Saturation, TimeParts

QUIET_RATIO = 0.05
"""Pipes and memory below this do not explain the time that was spent."""
BUSY_LINK_RATIO = 0.10
"""A link at this share of its peak does."""
ROUNDING_RATIO = 0.002
"""How far a link may be below that: its peak is a rounded figure."""
MOSTLY_RATIO = 0.5
"""What is more than this part of an interval is the largest part of it."""


def limiter(
    parts: TimeParts,
    saturation: Saturation,
    activity: Activity,
    links: LinkRates,
    ceilings: Ceilings | None,
    dram_bandwidth: float | None,
    stall_of_idle: float | None,
    waited: float = 0.0,
) -> str:
    """Return the largest of idle, latency (= narrow + unsaturated), clock and saturated, refined.

    Idle becomes input if `stall_of_idle`, the part of the recent idle time in which the job waited
    for data, is at least half. Saturated becomes memory if DRAM is at least as active as every
    pipe, else compute. All but idle become communication if the GPU only communicates. Of equal
    parts the first is taken, because the earlier loss hides the later ones. `activity` is in shares
    of time, `dram_bandwidth` in bytes/s at the present clock. Idle time is without `waited`.
    """
    ordered = {
        "idle": max(parts.idle - waited, 0.0),
        "latency": parts.narrow + parts.unsaturated,
        "clock": parts.clock,
        "memory" if saturation.unit == "dram" else "compute": parts.saturated,
    }
    name = max(ordered, key=ordered.__getitem__)
    if name == "idle":
        return _idle(stall_of_idle)
    return "communication" if _communicates(activity, links, ceilings, dram_bandwidth) else name


def estimated_limiter(
    busy_ratio: float | None,
    *,
    throttled: bool,
    stall_of_idle: float | None = None,
    known: Known | None = None,
    links_busy: bool = False,
    waited: float = 0.0,
) -> str:
    """Return what limited an interval without time parts, as far as that is certain.

    Idle if 1 - `busy_ratio` (GR, else U) >= 0.5, which becomes input as in `limiter`. By what is
    `known`, more than half of the interval certainly had s (`_of_work`), or latency: G - s, which
    would be communication while `links_busy`. Else clock while a throttle reason holds, else
    unknown. `waited`, a part in which nothing ran, is not judged.
    """
    rest_ratio = 1.0 - waited
    if busy_ratio is not None:
        busy = busy_ratio if waited >= 1.0 else min(busy_ratio / rest_ratio, 1.0)
        if 1.0 - busy >= MOSTLY_RATIO:
            return _idle(stall_of_idle)
    if known is not None:
        mostly = MOSTLY_RATIO * rest_ratio
        if known.saturation.lower > mostly:
            name = _of_work(known, mostly, throttled=throttled)
            return name if name == "unknown" or _may_be(name, known, rest_ratio) else "unknown"
        if known.engine.lower - known.saturation.upper > mostly and not links_busy:
            return "latency"
        may_be_clock = known.clock_ratio.lower < MOSTLY_RATIO and _may_be(
            "clock", known, rest_ratio
        )
        throttled = throttled and may_be_clock
    return "clock" if throttled else "unknown"


def _of_work(known: Known, mostly: float, *, throttled: bool) -> str:
    """Return clock, memory, compute or unknown for an interval that is mostly s.

    Clock if the clock of whichever unit gives s is below half of its reference, or may be while a
    throttle reason holds. Else DRAM or the pipes, whichever are certainly active for most of it.
    """
    clock = known.clock_ratio
    if clock.upper < MOSTLY_RATIO or (throttled and clock.lower < MOSTLY_RATIO):
        return "clock"
    dram = known.units["dram"].lower
    pipe = max(unit.lower for name, unit in known.units.items() if name != "dram")
    if max(dram, pipe) <= mostly:
        return "unknown"
    return "memory" if dram >= pipe else "compute"


def _may_be(name: str, known: Known, rest_ratio: float) -> bool:
    """Return whether a part may be the largest of the judged time: a quarter of it, and as long as
    each of the others is at least."""
    parts = known.time_parts
    saturated = parts["saturated"]
    lower = {
        "idle": parts["idle"].lower - (1.0 - rest_ratio),
        "latency": known.engine.lower - known.saturation.upper,
        "clock": parts["clock"].lower,
        "saturated": saturated.lower,
    }
    part = name if name in lower else "saturated"
    least = max(value for other, value in lower.items() if other != part)
    upper = parts["clock"].upper if part == "clock" else saturated.upper
    return upper >= max(rest_ratio / 4, least)


def _idle(stall_of_idle: float | None) -> str:
    explained = stall_of_idle is not None and stall_of_idle >= MOSTLY_RATIO
    return "input" if explained else "idle"


def _communicates(
    activity: Activity, links: LinkRates, ceilings: Ceilings | None, dram_bandwidth: float | None
) -> bool:
    """Return whether a link is busy and no pipe is, nor DRAM beyond what the links cost there."""
    of_links = dram_of_links(links, dram_bandwidth)
    return (
        busiest_pipe(activity) < QUIET_RATIO
        and cut(activity.dram or 0.0) - of_links < QUIET_RATIO
        and busy_link(links, ceilings)
    )


def busy_link(links: LinkRates, ceilings: Ceilings | None) -> bool:
    """Return whether a link is at 10 % of its peak or more, in its busier direction."""
    if ceilings is None:
        return False
    peaks = ceilings.link_bandwidth_bytes_per_second
    return any(
        rate is not None and peak and rate / peak >= BUSY_LINK_RATIO - ROUNDING_RATIO
        for rate, peak in ((links.nvlink, peaks.get("nvlink")), (links.pcie, peaks.get("pcie")))
    )
