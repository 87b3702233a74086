# SPDX-License-Identifier: Apache-2.0
"""The rows of the live view: what a browser gets of each GPU and each MIG instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from exporter.model.snapshot import Bounds, Gpu, Rank, Share, Snapshot
from exporter.web import waits
from exporter.web.columns import ESTIMATE, idle_ratio, is_old, measured_saturation, readings
from exporter.web.live.addresses import page_address, row_key
from exporter.web.live.roofs import roof_key, whole_ceilings
from exporter.web.live.rounding import known, moment, ratio, rounded
from exporter.web.live.row_words import AMOUNTS, RATIOS, Row, worded
from exporter.web.wording.facts import (
    Counting,
    Facts,
    Holder,
    Range,
    Saturation,
    XidSeen,
    is_idle,
)
from exporter.web.wording.job_names import display_names
from exporter.web.wording.measuring import relevant, uncounted
from exporter.web.wording.numbers import LONG, cut, profile_name
from exporter.web.wording.recorded import down_reason
from exporter.web.wording.whose import words_of, workload_words


def rows(snapshot: Snapshot) -> Iterator[tuple[str, Row, Facts]]:
    """Yield name and row, and the facts that its words are made from.

    A GPU with MIG on has a row for its board, and one for each instance.
    """
    now = snapshot.timestamp_seconds
    ranks = waits.live_ranks(snapshot.ranks)
    jobs = display_names({rank.job for rank in snapshot.ranks})
    indices = Counter(gpu.device.index for gpu in snapshot.gpus)
    for gpu in snapshot.gpus:
        for share in _shares(gpu):
            instance = None if share is None else share.gpu_instance
            key = row_key(gpu.device.uuid, instance)
            here = ranks.get((gpu.device.uuid, instance), ())
            found = readings(gpu, share, here, now)
            facts = _facts(gpu, share, found, snapshot)
            if gpu.up and share is not None:
                facts = _with_jobs(facts, here, jobs)
            if not gpu.up and indices[gpu.device.index] > 1:
                # Another GPU has got the index of this one, which is lost.
                facts = replace(facts, digits=gpu.device.uuid[-4:])
            row = worded(facts, _numbers(gpu, share, found), now)
            yield key, {**row, "href": page_address(key)}, facts


def _shares(gpu: Gpu) -> Sequence[Share | None]:
    """Return the shares that have a row; None is the row of a GPU without one."""
    if not gpu.up:
        return (None,)
    if gpu.device.mig:
        return (None, *gpu.shares)
    return gpu.shares or (None,)


def _facts(gpu: Gpu, share: Share | None, found: dict[str, float], snapshot: Snapshot) -> Facts:
    device, now = gpu.device, snapshot.timestamp_seconds
    xids = tuple(
        XidSeen(code, max(0.0, now - record.last_timestamp_seconds))
        for code, record in sorted(gpu.xids.items())
    )
    if not gpu.up:
        reason = cut(down_reason(device.source, gpu.down_reason, snapshot.problem), LONG)
        return Facts(device.index, cut(device.name, LONG), down_reason=reason, xids=xids)
    instance = None if share is None else share.gpu_instance
    reasons = None if gpu.vitals is None or instance is not None else gpu.vitals.throttle_reasons
    board = Facts(
        device.index,
        cut(device.name, LONG),
        instance=instance,
        divided=share is None and device.mig,
        power_watts=found.get("power"),
        power_limit_watts=found.get("power_limit"),
        throttle_reasons=tuple(sorted(reasons or ())),
        # An instance leaves them to its GPU's own row.
        xids=xids if instance is None else (),
    )
    return board if share is None else _with_work(board, gpu, share, found)


def _with_work(board: Facts, gpu: Gpu, share: Share, found: dict[str, float]) -> Facts:
    roofline, memory, recent = share.roofline, share.memory, share.recent
    idle_seconds = share.totals.idle_for_seconds
    roofs = roofline if recent is None else recent
    limited = {} if recent is None else recent.limited_ratio
    return replace(
        board,
        profile=_profile(gpu, share.gpu_instance),
        architecture=gpu.device.architecture,
        virtual=gpu.device.virtualized,
        counting=_counting(gpu, share),
        measuring=recent is None and not (share.limiter and share.totals.observed_seconds),
        window_seconds=None if recent is None else recent.seconds or None,
        busy_ratio=found.get("utilization"),
        idle_ratio=idle_ratio(recent),
        clock_ratio=found.get("clock"),
        saturation=_saturation(share, found),
        limiter=share.limiter if recent is None else recent.limiter,
        input_ratio=limited.get("input"),
        roof_ratio={} if roofline is None or roofs is None else roofs.roof_ratio,
        data_stall=_data_stall(found),
        data_wait_ratio=found.get("wait"),
        idle=is_idle(idle_seconds, None if recent is None else recent.seconds),
        idle_seconds=idle_seconds,
        held=share.held,
        held_idle_seconds=share.totals.held_idle_seconds,
        holder=_holder(share),
        workloads=words_of(share.work.workloads),
        allocated=share.work.allocated,
        unopened_seconds=share.totals.unopened_for_seconds,
        memory_used_bytes=None if memory is None else memory.used_bytes,
        memory_total_bytes=None if memory is None else memory.total_bytes,
    )


def _counting(gpu: Gpu, share: Share) -> Counting | None:
    """Return how a share is measured; None while that is not known."""
    saturation, instance = share.saturation, share.gpu_instance
    states = relevant(gpu.states, instance)
    if saturation is None:
        return uncounted(states, instance=instance, virtual=gpu.device.virtualized)
    return Counting(
        source=None if saturation.source == ESTIMATE else saturation.source,
        complete=saturation.complete,
        unmeasured=tuple(saturation.unmeasured),
        old=is_old(share),
        states=states,
    )


def _profile(gpu: Gpu, gpu_instance: int | None) -> str | None:
    for each in gpu.device.instances:
        if each.gpu_instance == gpu_instance:
            return profile_name(each.profile)
    return None


def _with_jobs(facts: Facts, ranks: Sequence[Rank], names: Mapping[str, str]) -> Facts:
    job = waits.job_of(ranks)
    return replace(
        facts,
        waiting_for_data=waits.waiting(ranks),
        job=None if job is None else cut(names[job]),
    )


def _saturation(share: Share, found: dict[str, float]) -> Saturation | None:
    now, recent = share.saturation, share.recent
    if now is None:
        return None
    unit = now.unit if recent is None or is_old(share) else recent.saturation_unit
    bounds = Range(found["saturation_lower"], found["saturation_upper"])
    return Saturation(bounds, measured_saturation(share) is not None, now.source, unit)


def _data_stall(found: dict[str, float]) -> Range | None:
    if "stall" in found:
        return Range(found["stall"], found["stall"])
    if "stall_lower" in found:
        return Range(found["stall_lower"], found["stall_upper"])
    return None


def _holder(share: Share) -> Holder | None:
    found = share.holder
    if found is None:
        return None
    workload = None if found.workload is None else workload_words(found.workload)
    return Holder(found.owner, found.command, found.work_class, workload)


def _numbers(gpu: Gpu, share: Share | None, found: dict[str, float]) -> dict[str, Any]:
    """Return what a row has beside its words."""
    if not gpu.up:
        return known(
            since=moment(gpu.last_read_timestamp_seconds),
            ceilings=roof_key(whole_ceilings(gpu)),
        )
    values = {name: ratio(found[name]) for name in RATIOS if name in found}
    values |= {name: rounded(found[name]) for name in AMOUNTS if name in found}
    if share is None:
        return {**known(mig=gpu.device.mig or None), "values": values}
    memory = share.memory
    of_memory = memory.used_bytes / memory.total_bytes if memory and memory.total_bytes else None
    return {
        **known(
            memory_ratio=ratio(of_memory),
            **_bounds(share),
            ceilings=roof_key(share.ceilings),
        ),
        "values": values,
    }


def _bounds(share: Share) -> dict[str, Any]:
    """Return the FLOP/s that are possible, and the bytes/s where work or traffic is not measured.

    Over the last seconds where these are known.
    """
    now, saturation = share.roofline, share.saturation
    recent = share.recent
    flops = None if now is None else now.flops_bounds_per_second
    dram = None if now is None else now.dram_bounds_bytes_per_second
    traffic = None if now is None else now.dram_bytes_per_second
    if recent is not None and recent.flops_bounds_per_second is not None:
        flops, dram = recent.flops_bounds_per_second, recent.dram_bounds_bytes_per_second
        traffic = traffic if recent.dram_bytes_per_second is None else recent.dram_bytes_per_second
    if flops is None or not flops.upper:
        return {}
    bounds: dict[str, Any] = {"flops_bounds": [rounded(flops.lower), rounded(flops.upper)]}
    if saturation is None or saturation.complete or measured_saturation(share) is not None:
        return bounds
    if dram is None and traffic is not None:
        dram = Bounds(traffic, traffic)
    if dram is None:
        return bounds
    return {**bounds, "bytes_bounds": [rounded(dram.lower), rounded(dram.upper)]}
