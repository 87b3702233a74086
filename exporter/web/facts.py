# SPDX-License-Identifier: Apache-2.0
"""The facts about each GPU and MIG instance of a snapshot, for the page and for ``status``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from exporter.derive import waits
from exporter.model.reading import Place
from exporter.model.snapshot import Gpu, Share, Snapshot
from exporter.web.columns import ESTIMATE, is_old, measured_saturation, memory_busy, readings
from exporter.web.wording.facts import Counting, Facts, Range, Saturation, XidSeen, is_idle
from exporter.web.wording.measuring import GPM, relevant
from exporter.web.wording.numbers import LONG, cut, profile_name
from exporter.web.wording.recorded import down_reason, notice
from exporter.web.wording.whose import display_names, words_of


def notice_of(snapshot: Snapshot) -> str | None:
    """Return that the data is recorded or simulated, as the page's banner says it."""
    return notice(
        {(gpu.device.source, gpu.device.driver_version) for gpu in snapshot.gpus},
        snapshot.problem,
    )


class Line(NamedTuple):
    """One line of the table of GPUs."""

    gpu: Gpu
    share: Share | None
    """None for a GPU that is down or divided into instances."""
    values: dict[str, float]
    """What is known of it in numbers, by column of the history."""
    facts: Facts


def lines_of(snapshot: Snapshot) -> Iterator[Line]:
    """Yield a line for each GPU and each MIG instance; a GPU with MIG on has one for its board."""
    ranks = waits.live_ranks(snapshot.ranks)
    jobs = display_names({rank.job for rank in snapshot.ranks})
    indices = Counter(gpu.device.index for gpu in snapshot.gpus)
    for gpu in snapshot.gpus:
        for share in _shares(gpu):
            instance = None if share is None else share.gpu_instance
            here = ranks.get(Place(gpu.device.uuid, instance), ())
            values = readings(gpu, share, here, snapshot.timestamp_seconds)
            facts = _of_board(gpu, instance, values, snapshot)
            if not gpu.up and indices[gpu.device.index] > 1:
                # Another GPU has got the index of this one, which is lost.
                facts = replace(facts, digits=gpu.device.uuid[-4:])
            if share is not None:
                worst = waits.worst_rank(here)
                job = None if worst is None else cut(jobs[worst.job])
                facts = replace(facts, waiting_for_data=waits.waiting(here), job=job)
                facts = _with_work(facts, gpu, share, values)
            yield Line(gpu, share, values, facts)


def _shares(gpu: Gpu) -> Sequence[Share | None]:
    if not gpu.up:
        return (None,)
    if gpu.device.mig:
        return (None, *gpu.shares)
    return gpu.shares or (None,)


def _of_board(
    gpu: Gpu, instance: int | None, values: Mapping[str, float], snapshot: Snapshot
) -> Facts:
    """Return the facts about a GPU's board; an instance leaves most of them to its GPU's line."""
    device, vitals, now = gpu.device, gpu.vitals, snapshot.timestamp_seconds
    name = cut(device.name, LONG)
    xids = tuple(
        XidSeen(code, max(0.0, now - record.last_timestamp_seconds))
        for code, record in sorted(gpu.xids.items())
    )
    if not gpu.up:
        reason = cut(down_reason(device.source, gpu.down_reason, snapshot.problem), LONG)
        return Facts(device.index, name, down_reason=reason, xids=xids)
    if instance is not None:
        return Facts(device.index, name, instance=instance)
    return Facts(
        device.index,
        name,
        divided=device.mig,
        power_watts=values.get("power"),
        power_limit_watts=values.get("power_limit"),
        temperature_celsius=None if vitals is None else vitals.temperature_celsius,
        throttle_reasons=() if vitals is None else tuple(sorted(vitals.throttle_reasons or ())),
        xids=xids,
    )


def _with_work(facts: Facts, gpu: Gpu, share: Share, values: Mapping[str, float]) -> Facts:
    roofline, memory, recent = share.roofline, share.memory, share.recent
    idle_seconds = share.totals.idle_for_seconds
    roofs = roofline if recent is None else recent
    limited = {} if recent is None else recent.limited_ratio
    profiles = (
        profile_name(each.profile)
        for each in gpu.device.instances
        if each.gpu_instance == share.gpu_instance
    )
    return replace(
        facts,
        profile=next(profiles, None),
        architecture=gpu.device.architecture,
        virtual=gpu.device.virtualized,
        counting=_counting(gpu, share),
        measuring=recent is None and not (share.limiter and share.totals.observed_seconds),
        window_seconds=None if recent is None else recent.seconds or None,
        busy_ratio=values.get("utilization"),
        idle_ratio=waits.idle_ratio(recent),
        clock_ratio=values.get("clock"),
        saturation=_saturation(share, values),
        mfu_ratio=None if recent is None else recent.model_flops_utilization_ratio,
        memory_busy=memory_busy(share, values),
        limiter=share.limiter if recent is None else recent.limiter,
        input_ratio=limited.get("input"),
        diagnoses=share.diagnoses,
        missing_evidence=share.missing_evidence,
        roof_ratio={} if roofline is None or roofs is None else roofs.roof_ratio,
        data_stall=_data_stall(values),
        data_wait_ratio=values.get("wait"),
        idle=is_idle(idle_seconds, None if recent is None else recent.seconds),
        idle_seconds=idle_seconds,
        held=share.held,
        held_idle_seconds=share.totals.held_idle_seconds,
        holder=share.holder,
        workloads=words_of(share.work.workloads),
        allocated=share.work.allocated,
        unopened_seconds=share.totals.unopened_for_seconds,
        memory_used_bytes=None if memory is None else memory.used_bytes,
        memory_total_bytes=None if memory is None else memory.total_bytes,
        memory_unified=memory is not None and memory.unified is True,
    )


def _counting(gpu: Gpu, share: Share) -> Counting | None:
    """Return how a share is measured; None while that is not known.

    MIG instances and vGPUs without counters have no saturation; none has one at first.
    """
    saturation, instance = share.saturation, share.gpu_instance
    states = relevant(gpu.states, instance)
    if saturation is None:
        is_apart = gpu.device.virtualized or instance is not None
        return Counting(states=states) if is_apart and GPM in states else None
    return Counting(
        source=None if saturation.source == ESTIMATE else saturation.source,
        complete=saturation.complete,
        unmeasured=tuple(saturation.unmeasured),
        old=is_old(share),
        states=states,
    )


def _saturation(share: Share, values: Mapping[str, float]) -> Saturation | None:
    now, recent = share.saturation, share.recent
    if now is None or "saturation_lower" not in values:
        return None
    unit = now.unit if recent is None or is_old(share) else recent.saturation_unit
    bounds = Range(values["saturation_lower"], values["saturation_upper"])
    return Saturation(bounds, measured_saturation(share) is not None, now.source, unit)


def _data_stall(values: Mapping[str, float]) -> Range | None:
    if "stall" in values:
        return Range(values["stall"], values["stall"])
    if "stall_lower" in values:
        return Range(values["stall_lower"], values["stall_upper"])
    return None
