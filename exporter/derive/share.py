# SPDX-License-Identifier: Apache-2.0
"""Everything that is derived from one interval of one share of a GPU, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from exporter.derive.clocks import busy_clocks, clock_ratio, counted_clocks, read_clocks
from exporter.derive.cycles import in_cycles, in_time, shows_cycles, time_per_cycle
from exporter.derive.flops import estimated_flops_bounds
from exporter.derive.history import NO_HISTORY, ClockHistory
from exporter.derive.holder import holder
from exporter.derive.idle import IdleRules, busy_ratio, is_held, is_idle
from exporter.derive.interval_bounds import (
    known_by_counters,
    known_by_utilization,
    observed,
)
from exporter.derive.limiter import busy_link, estimated_limiter, limiter
from exporter.derive.links import link_rates
from exporter.derive.roofline import (
    dram_bandwidth_now,
    dram_bounds_per_second,
    estimated_roofline,
    roofline,
)
from exporter.derive.saturation import estimated, measured
from exporter.derive.stall import Stall, gap_ratio
from exporter.derive.timeparts import time_parts
from exporter.derive.units import has_tensor_cores
from exporter.model.reading import Device, ShareReading, Vitals
from exporter.model.snapshot import Bounds, Ceilings, Holder, Roofline, Saturation, TimeParts

NO_STALL = Stall()
"""What is known of a share on which no training job reports."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What one interval of one share means; None where the readings do not show it."""

    saturation: Saturation | None = None
    time_parts: TimeParts | None = None
    time_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """By time part, where `time_parts` is not known because not every unit was read."""
    time_integral_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """The same of the observed time, to integrate."""
    roofline: Roofline | None = None
    idle: bool | None = None
    held: bool | None = None
    holder: Holder | None = None
    limiter: str | None = None
    waited: float = 0.0
    """The part of the interval in which nothing ran in a wait for data that was announced."""
    limiter_besides: str | None = None
    """The limiter of the rest of it; None where there is no such part."""
    gap: float | None = None
    """The part of the interval in which nothing ran, also where it was not idle as a whole."""
    data_stall: Mapping[str, Bounds] = field(default_factory=dict)
    """By method of inference."""
    flops_integral_bounds: Bounds | None = None
    """FLOP/s to integrate into the lower and upper totals. For an estimate the upper one follows
    the mean utilization, which is narrower over many intervals than `roofline`'s bound of one."""
    dram_integral_bounds: Bounds | None = None
    """Likewise bytes/s of DRAM traffic, where that is not measured."""
    history: ClockHistory = field(default=NO_HISTORY, compare=False)
    """What is known of clock and counters for the next interval."""


def derive_share(
    device: Device,
    vitals: Vitals,
    share: ShareReading,
    ceilings: Ceilings | None,
    rules: IdleRules,
    *,
    previous: Vitals | None = None,
    seconds: float | None = None,
    stall: Stall = NO_STALL,
    history: ClockHistory = NO_HISTORY,
) -> Derived:
    """Derive one share of `device`; `previous` are the vitals read `seconds` before `vitals`.

    `history` is that of the share's last interval. The utilization, video engines and link traffic
    of the board are those of the share only while it is the whole GPU, and in a vGPU guest the
    utilization is not even then. A share that can be measured is never estimated: an interval
    without counters has no saturation.
    """
    activity = share.activity
    whole = not device.mig and share.gpu_instance is None
    board = vitals if whole else None
    utilization = vitals.utilization if whole and not device.virtualized else None
    links = link_rates(activity, board, previous, seconds)
    ratio = None if utilization is None else utilization.ratio
    memory_ratio = None if utilization is None else utilization.memory_ratio
    held = is_held(share.processes, share.memory, rules, coherent_memory=device.coherent_memory)
    holds = holder(share.processes, held, rules)
    history = history.heard(vitals, seconds, None if activity is None else activity.engine)
    tensor_cores = has_tensor_cores(ceilings, device.compute_capability)
    throttled = bool(vitals.throttle_reasons)

    if activity is not None:
        history = history.measured(activity.engine, activity.seconds)
        clocks = counted_clocks(
            read_clocks(vitals, ceilings, device, history, activity),
            activity,
            None if ceilings is None else ceilings.sm_count,
        )
        clocks = busy_clocks(clocks, activity, vitals.clock_hertz.get("sm"))
        history = history.taken(counts_cycles=shows_cycles(activity))
        factor = time_per_cycle(
            activity, clocks.sm, clocks.sm_busy, counts_cycles=history.counts_cycles
        )
        timed = in_time(activity, factor)
        saturation = measured(
            timed,
            device.compute_capability,
            tensor_cores=tensor_cores,
            utilization=utilization,
        )
        of_cycles = saturation
        if factor != 1.0:
            of_cycles = measured(
                in_cycles(activity, factor),
                device.compute_capability,
                tensor_cores=tensor_cores,
                utilization=utilization,
            )
        parts = time_parts(timed, saturation, clock_ratio(saturation.unit, clocks))
        known = None
        if parts is None:
            known = known_by_counters(
                timed, saturation, clocks, utilization, device.compute_capability
            )
        roof = roofline(
            activity, timed, of_cycles, ceilings, clocks, device, tensor_cores=tensor_cores
        )
        gap = gap_ratio(activity, parts, utilization)

        def judge(waited: float, of_idle: float | None) -> str:
            if parts is None:
                used = busy_ratio(activity, ratio)
                if used is not None:
                    used = max(used, saturation.bounds.lower)
                return estimated_limiter(
                    _of_rest(used, waited),
                    throttled=throttled,
                    stall_of_idle=of_idle,
                    known=known,
                    links_busy=busy_link(links, ceilings),
                    rest_ratio=1.0 - waited,
                )
            return limiter(
                replace(parts, idle=max(parts.idle - waited, 0.0)),
                saturation,
                timed,
                links,
                ceilings,
                dram_bandwidth_now(ceilings, clocks, device),
                of_idle,
            )

        limits = _limits(judge, stall, gap)
        bounded_parts = {} if known is None else known.time_parts
        return Derived(
            saturation=saturation,
            time_parts=parts,
            time_bounds=bounded_parts,
            time_integral_bounds=bounded_parts,
            roofline=roof,
            idle=is_idle(timed, ratio, board, links.total, rules, memory_ratio),
            held=held,
            holder=holds,
            limiter=limits.limiter,
            waited=limits.waited,
            limiter_besides=limits.besides,
            gap=gap,
            data_stall=stall.inferred,
            flops_integral_bounds=roof.flops_bounds_per_second,
            dram_integral_bounds=roof.dram_bounds_bytes_per_second,
            history=history,
        )
    idle = is_idle(None, ratio, board, links.total, rules, memory_ratio)
    if share.counters is not None:
        return Derived(idle=idle, held=held, holder=holds, history=history)
    if utilization is None:
        guest = whole and vitals.utilization is not None
        return Derived(
            idle=idle,
            held=held,
            holder=holds,
            limiter=estimated_limiter(None, throttled=throttled) if guest else None,
            history=history,
        )
    clocks = read_clocks(vitals, ceilings, device, history)
    saturation = estimated(utilization, tensor_cores=tensor_cores)
    known = known_by_utilization(utilization, saturation, clocks)
    seen = observed(utilization)
    of_seen = estimated(seen, tensor_cores=tensor_cores)
    gap = gap_ratio(None, None, utilization)
    limits = _limits(
        lambda waited, of_idle: estimated_limiter(
            _of_rest(ratio, waited),
            throttled=throttled,
            stall_of_idle=of_idle,
            known=known,
            links_busy=busy_link(links, ceilings),
            rest_ratio=1.0 - waited,
        ),
        stall,
        gap,
    )
    integral = None
    if ceilings is not None:
        integral = estimated_flops_bounds(
            seen.upper_ratio,
            ceilings,
            clocks,
            device.compute_capability,
            tensor_cores=tensor_cores,
        )
    return Derived(
        saturation=saturation,
        time_bounds=known.time_parts,
        time_integral_bounds=known_by_utilization(seen, of_seen, clocks).time_parts,
        roofline=estimated_roofline(
            utilization, saturation, ceilings, clocks, device, tensor_cores=tensor_cores
        ),
        idle=idle,
        held=held,
        holder=holds,
        limiter=limits.limiter,
        waited=limits.waited,
        limiter_besides=limits.besides,
        gap=gap,
        data_stall=stall.inferred,
        flops_integral_bounds=integral,
        dram_integral_bounds=dram_bounds_per_second(of_seen, ceilings, clocks, device),
        history=history,
    )


class _Limits(NamedTuple):
    limiter: str
    waited: float
    besides: str | None


def _limits(
    judge: Callable[[float, float | None], str], stall: Stall, gap: float | None
) -> _Limits:
    """Return what limited an interval, and apart from each other an announced wait and the rest.

    `judge` names the limiter, given the idle part to leave out and how much of the other idle time
    the stall covers. One word for an interval in which a wait begins or ends would count all of it
    or nothing. A job that computes on the CPU between its waits leaves its GPU idle in both, and
    has one word.
    """
    name = judge(0.0, stall.within(gap).of_idle)
    waited = stall.waited(gap)
    if not waited:
        return _Limits(name, 0.0, None)
    besides = judge(waited, stall.of_idle) if waited < 1.0 else None
    return _Limits(name, 0.0, None) if besides == "idle" else _Limits(name, waited, besides)


def _of_rest(busy: float | None, waited: float) -> float | None:
    """Return the busy part of an interval without the part in which nothing ran for a wait."""
    return busy if busy is None or waited >= 1.0 else min(busy / (1.0 - waited), 1.0)
