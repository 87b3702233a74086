# SPDX-License-Identifier: Apache-2.0
"""Everything that is derived from one interval of one share of a GPU, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from exporter.derive.clocks import busy_clocks, clock_ratio, counted_clocks, read_clocks
from exporter.derive.cycles import in_cycles, in_time, shows_cycles, time_per_cycle
from exporter.derive.flops import estimated_flops_bounds
from exporter.derive.history import NO_HISTORY, ClockHistory
from exporter.derive.idle import IdleRules, busy_ratio, holder, is_held, is_idle
from exporter.derive.limiter import busy_link, estimated_limiter, limiter
from exporter.derive.links import LinkRates, link_rates
from exporter.derive.roofline import (
    dram_bandwidth_now,
    dram_bounds_per_second,
    estimated_roofline,
    roofline,
)
from exporter.derive.saturation import estimated, measured
from exporter.derive.stall import Stall
from exporter.derive.timeparts import (
    Known,
    known_by_counters,
    known_by_utilization,
    observed,
    time_parts,
)
from exporter.derive.units import has_tensor_cores
from exporter.model.reading import Activity, Device, ShareReading, Utilization, Vitals
from exporter.model.snapshot import (
    Bounds,
    Ceilings,
    Holder,
    MemoryUtilizationUse,
    Roofline,
    Saturation,
    TimeParts,
)

NO_STALL = Stall()


@dataclass(frozen=True, slots=True)
class Derived:
    """The derived values of one interval of one share; None where they are unknown."""

    saturation: Saturation | None = None
    time_parts: TimeParts | None = None
    time_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """By time part, where `time_parts` is not known because not every unit was read."""
    time_integral_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    roofline: Roofline | None = None
    idle: bool | None = None
    held: bool | None = None
    holder: Holder | None = None
    limiter: str | None = None
    waited: float = 0.0
    """The part of the interval in which nothing ran in an announced wait for data."""
    limiter_besides: str | None = None
    """The limiter of the rest of it; None where there is no such part."""
    gap: float | None = None
    """The part of the interval in which nothing ran: 1 - G, else 1 - GR, else 1 - U."""
    data_stall: Mapping[str, Bounds] = field(default_factory=dict)
    flops_integral_bounds: Bounds | None = None
    """FLOP/s to integrate: for an estimate by the mean utilization, which is narrower over many
    intervals than `roofline`'s bound of one. Likewise bytes/s of DRAM that is not measured."""
    dram_integral_bounds: Bounds | None = None
    history: ClockHistory = field(default=NO_HISTORY, compare=False)


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

    Utilization, video engines and link traffic of the board are the share's only while it is the
    whole GPU, and in a vGPU guest the utilization is not even then. A share that can be measured is
    never estimated: an interval without counters has no saturation.
    """
    activity = share.activity
    whole = not device.mig and share.gpu_instance is None
    board = vitals if whole else None
    utilization = vitals.utilization if whole and not device.virtualized else None
    links = link_rates(activity, board, previous, seconds)
    held = is_held(share.processes, share.memory, rules, coherent_memory=device.coherent_memory)
    known = Derived(
        held=held,
        holder=holder(share.processes, held, rules),
        history=history.heard(vitals, seconds, None if activity is None else activity.engine),
    )
    timed = None
    if activity is not None:
        known, timed = _measured(
            known, device, vitals, activity, utilization, ceilings, links, stall
        )
    elif share.counters is None and utilization is not None:
        known = _estimated(known, device, vitals, utilization, ceilings, links, stall)
    elif share.counters is None and whole and vitals.utilization is not None:  # a vGPU guest
        throttled = bool(vitals.throttle_reasons)
        known = replace(known, limiter=estimated_limiter(None, throttled=throttled))
    ratio = None if utilization is None else utilization.ratio
    memory_ratio = None if utilization is None else utilization.memory_ratio
    return replace(known, idle=is_idle(timed, ratio, board, links.total, rules, memory_ratio))


def _measured(
    known: Derived,
    device: Device,
    vitals: Vitals,
    activity: Activity,
    utilization: Utilization | None,
    ceilings: Ceilings | None,
    links: LinkRates,
    stall: Stall,
) -> tuple[Derived, Activity]:
    """Return `known` with the values measured by counters, and these as shares of time."""
    capability = device.compute_capability
    tensor_cores = has_tensor_cores(ceilings, capability)
    history = known.history.measured(
        activity.engine, activity.seconds, counts_cycles=shows_cycles(activity)
    )
    clocks = counted_clocks(
        read_clocks(vitals, ceilings, device, history, activity),
        activity,
        None if ceilings is None else ceilings.sm_count,
    )
    clocks = busy_clocks(clocks, activity, vitals.clock_hertz.get("sm"))
    factor = time_per_cycle(
        activity, clocks.sm, clocks.sm_busy, counts_cycles=history.counts_cycles
    )
    timed = in_time(activity, factor)
    measure = partial(
        measured,
        compute_capability=capability,
        tensor_cores=tensor_cores,
        utilization=utilization,
        memory_use=_memory_use(ceilings),
    )
    saturation = measure(timed)
    of_cycles = saturation if factor == 1.0 else measure(in_cycles(activity, factor))
    parts = time_parts(timed, saturation, clock_ratio(saturation.unit, clocks))
    roof = roofline(activity, timed, of_cycles, ceilings, clocks, device, tensor_cores=tensor_cores)
    bounded_parts: Mapping[str, Bounds] = {}
    gap = None if parts is None else parts.idle
    if parts is None:
        bounds = known_by_counters(timed, saturation, clocks, utilization, capability)
        bounded_parts = bounds.time_parts
        used = busy_ratio(activity, None if utilization is None else utilization.ratio)
        if used is not None:
            gap = min(max(0.0, 1.0 - used), bounded_parts["idle"].upper)
            used = max(used, bounds.engine.lower)
        judge = _judge_bounds(used, bounds, vitals, links, ceilings)
    else:
        bandwidth = dram_bandwidth_now(ceilings, clocks, device)
        judge = partial(limiter, parts, saturation, timed, links, ceilings, bandwidth)
    derived = replace(
        known,
        saturation=saturation,
        time_parts=parts,
        time_bounds=bounded_parts,
        time_integral_bounds=bounded_parts,
        roofline=roof,
        **_limits(judge, stall, gap),
        gap=gap,
        data_stall=stall.inferred,
        flops_integral_bounds=roof.flops_bounds_per_second,
        dram_integral_bounds=roof.dram_bounds_bytes_per_second,
        history=history,
    )
    return derived, timed


def _estimated(
    known: Derived,
    device: Device,
    vitals: Vitals,
    utilization: Utilization,
    ceilings: Ceilings | None,
    links: LinkRates,
    stall: Stall,
) -> Derived:
    """Return `known` with the bounds that follow from the utilization alone."""
    capability = device.compute_capability
    tensor_cores = has_tensor_cores(ceilings, capability)
    clocks = read_clocks(vitals, ceilings, device, known.history)
    estimate = partial(estimated, tensor_cores=tensor_cores, memory_use=_memory_use(ceilings))
    saturation = estimate(utilization)
    bounds = known_by_utilization(utilization, saturation, clocks)
    seen = observed(utilization)
    of_seen = estimate(seen)
    gap = max(0.0, 1.0 - utilization.ratio)
    judge = _judge_bounds(utilization.ratio, bounds, vitals, links, ceilings)
    return replace(
        known,
        saturation=saturation,
        time_bounds=bounds.time_parts,
        time_integral_bounds=known_by_utilization(seen, of_seen, clocks).time_parts,
        roofline=estimated_roofline(
            utilization, saturation, ceilings, clocks, device, tensor_cores=tensor_cores
        ),
        **_limits(judge, stall, gap),
        gap=gap,
        data_stall=stall.inferred,
        flops_integral_bounds=estimated_flops_bounds(
            seen.upper_ratio, ceilings, clocks, capability, tensor_cores=tensor_cores
        ),
        dram_integral_bounds=dram_bounds_per_second(of_seen, ceilings, clocks, device),
    )


def _memory_use(ceilings: Ceilings | None) -> MemoryUtilizationUse | None:
    return "estimate" if ceilings is None else ceilings.memory_utilization_use


def _judge_bounds(
    busy: float | None, known: Known, vitals: Vitals, links: LinkRates, ceilings: Ceilings | None
) -> Callable[..., str]:
    return partial(
        estimated_limiter,
        busy,
        throttled=bool(vitals.throttle_reasons),
        known=known,
        links_busy=busy_link(links, ceilings),
    )


def _limits(judge: Callable[..., str], stall: Stall, gap: float | None) -> dict[str, Any]:
    """Return the limiter of an interval: of the part in an announced wait, and of the rest.

    A job that computes on the CPU between its waits leaves its GPU idle in both, and has one word.
    """
    name = judge(stall_of_idle=stall.within(gap).of_idle)
    waited = stall.waited(gap)
    besides = None
    if 0.0 < waited < 1.0:
        besides = judge(stall_of_idle=stall.of_idle, waited=waited)
    if besides == "idle":
        return {"limiter": name}
    return {"limiter": name, "waited": waited, "limiter_besides": besides}
