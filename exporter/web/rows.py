# SPDX-License-Identifier: Apache-2.0
"""One row of the live view: what a browser is told of a GPU, or of one MIG instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.exposition.families import pipe_ratios, total_flops
from exporter.exposition.training import phase_seconds
from exporter.reading import SUSPENDED
from exporter.snapshot import TIME_PARTS, Gpu, Rank, Roofline, Saturation, Share, Snapshot
from exporter.waits import inferred_stall, live_ranks, measured_stall, wait_for_data
from exporter.web.numbers import cut, known, moment, ratio, ratios, rounded
from exporter.web.roofs import roof_key
from exporter.web.standing import Standing, Told, word

Row = dict[str, Any]
RankKey = tuple[str, int, str | None, int | None]

SHOWN_RANKS = 4
"""More ranks on one GPU are only counted."""


def row_key(uuid: str, gpu_instance: int | None) -> str:
    """Return the name of a row: the GPU's UUID, or UUID/instance."""
    return uuid if gpu_instance is None else f"{uuid}/{gpu_instance}"


def rank_key(rank: Rank) -> RankKey:
    """Return what tells one rank on one device from the others."""
    return rank.job, rank.rank, rank.gpu_uuid, rank.gpu_instance


def rows(
    snapshot: Snapshot, earlier: Mapping[RankKey, Rank]
) -> Iterator[tuple[str, Row, Told | None]]:
    """Yield name, row and what the sentences tell of it.

    A GPU with MIG on has a row of its own, of what is the board's, and one for each instance.
    """
    ranks = live_ranks(snapshot.ranks)
    for gpu in snapshot.gpus:
        uuid, label = gpu.device.uuid, f"GPU {gpu.device.index}"
        if not gpu.up:
            yield uuid, *_down(gpu, label)
            continue
        shares = gpu.shares
        if gpu.device.mig:
            board = known(**_head(gpu), state="up", mig=True, **_board(gpu))
            yield uuid, board, None if shares else Told(label, "free")
        for share in shares:
            instance = share.gpu_instance
            name = label if instance is None else f"{label}/{instance}"
            here = ranks.get((uuid, instance), ())
            yield row_key(uuid, instance), *_share(gpu, share, here, earlier, name)
        if not shares and not gpu.device.mig:
            row = known(**_head(gpu), state="up", word="unknown", **_board(gpu))
            yield uuid, row, Told(label, "unknown")


def _head(gpu: Gpu) -> dict[str, Any]:
    return {
        "gpu": gpu.device.index,
        "name": cut(gpu.device.name),
        "spec": None if gpu.ceilings is None else gpu.ceilings.spec,
        "xid": _xid(gpu),
    }


def _xid(gpu: Gpu) -> dict[str, Any] | None:
    if not gpu.xids:
        return None
    code, record = max(gpu.xids.items(), key=lambda item: item[1].last_timestamp_seconds)
    return {"code": code, "at": moment(record.last_timestamp_seconds), "count": record.count}


def _down(gpu: Gpu, label: str) -> tuple[Row, Told]:
    reason = gpu.down_reason or "no answer"
    state = "suspended" if reason == SUSPENDED else "lost"
    row = known(
        **_head(gpu),
        state=state,
        word=word(Standing(state)),
        reason=cut(reason),
        since=moment(gpu.last_read_timestamp_seconds),
    )
    return row, Told(label, row["word"], reason=row["reason"])


def _board(gpu: Gpu) -> dict[str, Any]:
    """Return the board's readings; they are no instance's."""
    vitals, board = gpu.vitals, gpu.board
    if vitals is None:
        return {}
    limit = None if board is None else board.power_limit_watts
    clock = vitals.clock_hertz.get("sm")
    reasons, celsius = vitals.throttle_reasons, vitals.temperature_celsius
    return {
        "power": _against(vitals.power_watts, limit),
        "celsius": None if celsius is None else round(celsius),
        "clock": _against(clock, gpu.device.clock_max_hertz.get("sm")),
        "throttle": None if not reasons else sorted(reasons),
    }


def _against(value: float | None, limit: float | None) -> list[float | int | None] | None:
    """Return a value and its limit; the value alone where that is not known."""
    if value is None:
        return None
    return [rounded(value)] if limit is None else [rounded(value), rounded(limit)]


def _share(
    gpu: Gpu, share: Share, ranks: Sequence[Rank], earlier: Mapping[RankKey, Rank], label: str
) -> tuple[Row, Told]:
    activity, saturation, roofline = share.activity, share.saturation, share.roofline
    parts = share.time_parts
    stall = measured_stall(ranks)
    inferred = None if stall is not None else inferred_stall(share)
    busy = None if share.utilization is None else share.utilization.ratio
    if busy is None and activity is not None:
        busy = activity.engine
    idle_since = _idle_since(gpu, share)
    read = gpu.last_read_timestamp_seconds
    idle_seconds = None if idle_since is None or read is None else read - idle_since
    measured = None if saturation is None else saturation.ratio
    name = word(
        Standing(
            "up",
            busy=busy,
            saturation_lower=None if saturation is None else saturation.bounds.lower,
            saturation_upper=None if saturation is None else saturation.bounds.upper,
            of_achievable=None if roofline is None else roofline.roof_ratio.get("achievable"),
            limiter=share.limiter,
            stall=inferred.lower if inferred is not None else stall,
            held=share.held,
            idle_seconds=idle_seconds,
        )
    )
    row = known(
        **_head(gpu),
        instance=share.gpu_instance,
        profile=_profile(gpu, share.gpu_instance),
        state="up",
        word=name,
        utilization=ratio(busy),
        saturation=ratio(measured),
        saturation_bounds=_pair(None if saturation is None or measured is not None else saturation),
        source=None if saturation is None else saturation.source,
        unit=None if saturation is None else saturation.unit,
        limiter=None if share.limiter is None else cut(share.limiter),
        stall=ratio(stall),
        stall_bounds=None if inferred is None else [ratio(inferred.lower), ratio(inferred.upper)],
        wait=ratio(wait_for_data(ranks)),
        memory=(
            None
            if share.memory is None
            else [rounded(share.memory.used_bytes), rounded(share.memory.total_bytes)]
        ),
        idle_since=moment(idle_since),
        held=share.held,
        holder=_holder(share),
        parts=None if parts is None else {name: ratio(getattr(parts, name)) for name in TIME_PARTS},
        pipes=None if activity is None else ratios(pipe_ratios(activity)),
        sm=None if activity is None else ratio(activity.sm),
        dram=None if activity is None else ratio(activity.dram),
        engine=None if activity is None else ratio(activity.engine),
        roof=None if roofline is None else ratios(roofline.roof_ratio),
        point=_point(roofline),
        point_bounds=_point_bounds(share),
        ceilings=roof_key(share.ceilings),
        jobs=[_job(rank, earlier.get(rank_key(rank))) for rank in ranks[:SHOWN_RANKS]],
        more_jobs=max(0, len(ranks) - SHOWN_RANKS) or None,
        **({} if gpu.device.mig else _board(gpu)),
    )
    holder = share.holder
    who = None if holder is None else holder.owner or holder.command
    return row, Told(label, name, idle_seconds, None if who is None else cut(who))


def _pair(saturation: Saturation | None) -> list[float | int | None] | None:
    if saturation is None:
        return None
    return [ratio(saturation.bounds.lower), ratio(saturation.bounds.upper)]


def _profile(gpu: Gpu, gpu_instance: int | None) -> str | None:
    """Return the profile of a GPU instance: 3g.40gb, also of one divided into 1c.3g.40gb ..."""
    for each in gpu.device.instances:
        if each.gpu_instance == gpu_instance:
            return cut(each.profile.split("c.", 1)[-1])
    return None


def _idle_since(gpu: Gpu, share: Share) -> float | None:
    """Return when a share that is idle began to be; None where it is not, or not known to be."""
    last_busy, read = share.totals.last_busy_timestamp_seconds, gpu.last_read_timestamp_seconds
    if last_busy is None or read is None or last_busy >= read:
        return None
    return last_busy


def _holder(share: Share) -> dict[str, Any] | None:
    holder = share.holder
    if holder is None:
        return None
    return known(
        owner=None if holder.owner is None else cut(holder.owner),
        command=None if holder.command is None else cut(holder.command),
        **{"class": cut(holder.workload)},
    )


def _point(roofline: Roofline | None) -> dict[str, Any] | None:
    """Return where a share stands on the chart, whose axes have no zero."""
    if roofline is None:
        return None
    flops, intensity = total_flops(roofline), roofline.intensity_flops_per_byte
    if not flops or not intensity:
        return None
    return {"flops": rounded(flops), "intensity": rounded(intensity)}


def _point_bounds(share: Share) -> dict[str, Any] | None:
    """Return the FLOP/s that are possible, and the bytes/s where those are not measured."""
    roofline, saturation, ceilings = share.roofline, share.saturation, share.ceilings
    flops = None if roofline is None else roofline.flops_bounds_per_second
    if flops is None or not flops.upper:
        return None
    dram = None if saturation is None else saturation.unmeasured.get("dram")
    bandwidth = None if ceilings is None else ceilings.memory_bandwidth_bytes_per_second
    return known(
        flops=[rounded(flops.lower), rounded(flops.upper)],
        bytes=(
            None
            if dram is None or bandwidth is None
            else [rounded(dram.lower * bandwidth), rounded(dram.upper * bandwidth)]
        ),
    )


def _job(rank: Rank, before: Rank | None) -> dict[str, Any]:
    """Return what a rank did since `before`: its phases as shares of the step time, its steps."""
    phases: dict[str, float] = {}
    steps_per_second = None
    if before is not None:
        spent = rank.totals.step_seconds - before.totals.step_seconds
        passed = rank.last_report_timestamp_seconds - before.last_report_timestamp_seconds
        earlier = phase_seconds(before.totals)
        if spent > 0:
            phases = {
                phase: share
                for phase, seconds in phase_seconds(rank.totals).items()
                if (share := (seconds - earlier[phase]) / spent) >= 0.0005
            }
        if passed > 0:
            steps_per_second = max(0.0, rank.totals.steps - before.totals.steps) / passed
    return known(
        job=cut(rank.job),
        rank=rank.rank,
        wait=ratio(rank.data_wait_ratio),
        stall=ratio(rank.data_stall_ratio),
        phases=ratios(phases),
        steps_per_second=rounded(steps_per_second),
    )
