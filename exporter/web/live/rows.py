# SPDX-License-Identifier: Apache-2.0
"""The rows of the live view: what a browser gets of each GPU and each MIG instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from exporter.model.snapshot import Gpu, Share, Snapshot
from exporter.web.columns import readings
from exporter.web.live.addresses import page_address, row_key
from exporter.web.live.roofs import roof_key, whole_ceilings
from exporter.web.live.rounding import known, moment, ratio, rounded
from exporter.web.live.row_words import AMOUNTS, RATIOS, Row, worded
from exporter.web.waits import live_ranks
from exporter.web.wording.facts import Facts, Holder, Range, Saturation
from exporter.web.wording.numbers import LONG, cut, profile_name


def rows(snapshot: Snapshot) -> Iterator[tuple[str, Row, Facts]]:
    """Yield name and row, and the facts that its words are made from.

    A GPU with MIG on has a row for its board, and one for each instance.
    """
    now = snapshot.timestamp_seconds
    ranks = live_ranks(snapshot.ranks)
    indices = Counter(gpu.device.index for gpu in snapshot.gpus)
    for gpu in snapshot.gpus:
        for share in _shares(gpu):
            instance = None if share is None else share.gpu_instance
            key = row_key(gpu.device.uuid, instance)
            found = readings(gpu, share, ranks.get((gpu.device.uuid, instance), ()))
            facts = _facts(gpu, share, found)
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


def _facts(gpu: Gpu, share: Share | None, found: dict[str, float]) -> Facts:
    device = gpu.device
    if not gpu.up:
        reason = cut(gpu.down_reason or "no answer", LONG)
        return Facts(device.index, cut(device.name, LONG), down_reason=reason)
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
    )
    return board if share is None else _with_work(board, gpu, share, found)


def _with_work(board: Facts, gpu: Gpu, share: Share, found: dict[str, float]) -> Facts:
    roofline, memory, idle_seconds = share.roofline, share.memory, share.totals.idle_for_seconds
    return replace(
        board,
        profile=_profile(gpu, share.gpu_instance),
        busy_ratio=found.get("utilization"),
        saturation=_saturation(share),
        limiter=share.limiter,
        roof_ratio={} if roofline is None else roofline.roof_ratio,
        data_stall=_data_stall(found),
        data_wait_ratio=found.get("wait"),
        idle=None if idle_seconds is None else idle_seconds > 0,
        idle_seconds=idle_seconds,
        held=share.held,
        held_idle_seconds=share.totals.held_idle_seconds,
        holder=_holder(share),
        memory_used_bytes=None if memory is None else memory.used_bytes,
        memory_total_bytes=None if memory is None else memory.total_bytes,
    )


def _profile(gpu: Gpu, gpu_instance: int | None) -> str | None:
    for each in gpu.device.instances:
        if each.gpu_instance == gpu_instance:
            return profile_name(each.profile)
    return None


def _saturation(share: Share) -> Saturation | None:
    found = share.saturation
    if found is None:
        return None
    lower, upper = found.bounds.lower, found.bounds.upper
    bounds = Range(lower, upper) if found.ratio is None else Range(found.ratio, found.ratio)
    return Saturation(bounds, found.ratio is not None, found.source, found.unit)


def _data_stall(found: dict[str, float]) -> Range | None:
    if "stall" in found:
        return Range(found["stall"], found["stall"])
    if "stall_lower" in found:
        return Range(found["stall_lower"], found["stall_upper"])
    return None


def _holder(share: Share) -> Holder | None:
    found = share.holder
    return None if found is None else Holder(found.owner, found.command, found.workload)


def _numbers(gpu: Gpu, share: Share | None, found: dict[str, float]) -> dict[str, Any]:
    """Return what a row has beside its words."""
    if not gpu.up:
        return known(
            xid=_xid(gpu),
            since=moment(gpu.last_read_timestamp_seconds),
            ceilings=roof_key(whole_ceilings(gpu)),
        )
    values = {name: ratio(found[name]) for name in RATIOS if name in found}
    values |= {name: rounded(found[name]) for name in AMOUNTS if name in found}
    if share is None:
        return {**known(xid=_xid(gpu), mig=gpu.device.mig or None), "values": values}
    memory = share.memory
    of_memory = memory.used_bytes / memory.total_bytes if memory and memory.total_bytes else None
    return {
        **known(
            xid=_xid(gpu),
            memory_ratio=ratio(of_memory),
            **_bounds(share),
            ceilings=roof_key(share.ceilings),
        ),
        "values": values,
    }


def _xid(gpu: Gpu) -> dict[str, Any] | None:
    if not gpu.xids:
        return None
    code, record = max(gpu.xids.items(), key=lambda item: item[1].last_timestamp_seconds)
    return {"code": code, "at": record.last_timestamp_seconds}


def _bounds(share: Share) -> dict[str, Any]:
    """Return the FLOP/s that are possible, and the bytes/s where work or traffic is not measured.

    Over the last seconds where these are known. A resource is never busier than the upper bound of
    the saturation, so that bounds the traffic over any time.
    """
    roofline, saturation, ceilings = share.roofline, share.saturation, share.ceilings
    recent, most = share.recent, None if saturation is None else saturation.bounds.upper
    flops = None if roofline is None else roofline.flops_bounds_per_second
    if recent is not None and recent.flops_bounds_per_second is not None:
        flops = recent.flops_bounds_per_second
        most = most if recent.saturation_bounds is None else recent.saturation_bounds.upper
    elif saturation is not None and "dram" in saturation.unmeasured:
        most = saturation.unmeasured["dram"].upper
    if flops is None or not flops.upper:
        return {}
    bounds: dict[str, Any] = {"flops_bounds": [rounded(flops.lower), rounded(flops.upper)]}
    bandwidth = None if ceilings is None else ceilings.memory_bandwidth_bytes_per_second
    if saturation is None or saturation.complete or most is None or bandwidth is None:
        return bounds
    dram = None if roofline is None else roofline.dram_bytes_per_second
    if recent is not None and recent.dram_bytes_per_second is not None:
        dram = recent.dram_bytes_per_second
    traffic = (0.0, most * bandwidth) if "dram" in saturation.unmeasured else (dram, dram)
    return bounds if None in traffic else {**bounds, "bytes_bounds": [*map(rounded, traffic)]}
