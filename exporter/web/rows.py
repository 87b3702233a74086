# SPDX-License-Identifier: Apache-2.0
"""One row of the live view: what a browser is told of a GPU, or of one MIG instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from exporter.model.reading import SUSPENDED
from exporter.model.snapshot import Gpu, Rank, Share, Snapshot
from exporter.web.addresses import page_address, row_key
from exporter.web.facts import AMOUNTS, RATIOS, Row, title, told
from exporter.web.history import busy_ratio, readings
from exporter.web.numbers import cut, known, moment, ratio, ratios, rounded
from exporter.web.roofs import roof_key, whole_ceilings
from exporter.web.standing import Standing, Told, word
from exporter.web.waits import live_ranks


def rows(snapshot: Snapshot) -> Iterator[tuple[str, Row, Told | None]]:
    """Yield name, row and what the sentences tell of it.

    A GPU with MIG on has a row of its own, of what is the board's, and one for each instance.
    """
    now = snapshot.timestamp_seconds
    for key, raw, tells in _raw_rows(snapshot):
        yield key, {**told(raw, now), "href": page_address(key)}, tells


def _raw_rows(snapshot: Snapshot) -> Iterator[tuple[str, dict[str, Any], Told | None]]:
    ranks = live_ranks(snapshot.ranks)
    indices = Counter(gpu.device.index for gpu in snapshot.gpus)
    for gpu in snapshot.gpus:
        uuid, label = gpu.device.uuid, title(gpu.device.index)
        if not gpu.up:
            # Another GPU may have got the index of one that is lost.
            yield uuid, *_down(gpu, uuid[-4:] if indices[gpu.device.index] > 1 else None)
            continue
        shares = gpu.shares
        if gpu.device.mig:
            board = {**_head(gpu), "state": "up", "mig": True, **_board(gpu, None)}
            yield uuid, board, None if shares else Told(label, "free")
        for share in shares:
            instance = share.gpu_instance
            name = label if instance is None else f"{label}/{instance}"
            here = ranks.get((uuid, instance), ())
            yield row_key(uuid, instance), *_share(gpu, share, here, name)
        if not shares and not gpu.device.mig:
            row = {**_head(gpu), "state": "up", "word": "unknown", **_board(gpu, None)}
            yield uuid, row, Told(label, "unknown")


def _head(gpu: Gpu) -> dict[str, Any]:
    return known(gpu=gpu.device.index, name=cut(gpu.device.name), xid=_xid(gpu))


def _xid(gpu: Gpu) -> dict[str, Any] | None:
    if not gpu.xids:
        return None
    code, record = max(gpu.xids.items(), key=lambda item: item[1].last_timestamp_seconds)
    return {"code": code, "at": record.last_timestamp_seconds}


def _down(gpu: Gpu, digits: str | None) -> tuple[dict[str, Any], Told]:
    """Return the row of a GPU, named with the last `digits` of its UUID where it has to be."""
    reason = gpu.down_reason or "no answer"
    state = "suspended" if reason == SUSPENDED else "lost"
    row = known(
        **_head(gpu),
        digits=digits,
        state=state,
        word=word(Standing(state)),
        reason=cut(reason),
        since=moment(gpu.last_read_timestamp_seconds),
        ceilings=roof_key(whole_ceilings(gpu)),
    )
    label = title(gpu.device.index, digits=digits)
    return row, Told(label, row["word"], reason=row["reason"])


def _board(gpu: Gpu, share: Share | None, ranks: Sequence[Rank] = ()) -> dict[str, Any]:
    """Return the readings of a share, with those of the board where they are not an instance's."""
    found = readings(gpu, share, ranks)
    values = {name: ratio(found[name]) for name in RATIOS if name in found}
    values |= {name: rounded(found[name]) for name in AMOUNTS if name in found}
    if share is not None and gpu.device.mig:
        return {"values": values}
    reasons = None if gpu.vitals is None else gpu.vitals.throttle_reasons
    return {"values": values, "throttle": sorted(reasons or ())}


def _share(
    gpu: Gpu, share: Share, ranks: Sequence[Rank], label: str
) -> tuple[dict[str, Any], Told]:
    saturation, roofline, memory = share.saturation, share.roofline, share.memory
    board = _board(gpu, share, ranks)
    values = board["values"]
    idle_seconds = share.totals.idle_for_seconds
    name = word(
        Standing(
            "up",
            busy=busy_ratio(share),
            saturation_lower=None if saturation is None else saturation.bounds.lower,
            saturation_upper=None if saturation is None else saturation.bounds.upper,
            of_achievable=None if roofline is None else roofline.roof_ratio.get("achievable"),
            limiter=share.limiter,
            stall=values.get("stall", values.get("stall_lower")),
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
        limiter=None if share.limiter is None else cut(share.limiter),
        memory=None if memory is None else {"used": memory.used_bytes, "total": memory.total_bytes},
        memory_ratio=(
            ratio(memory.used_bytes / memory.total_bytes) if memory and memory.total_bytes else None
        ),
        idle_seconds=idle_seconds,
        held=share.held,
        holder=_holder(share),
        roof=None if roofline is None else ratios(roofline.roof_ratio),
        **_bounds(share),
        ceilings=roof_key(share.ceilings),
    )
    holder = share.holder
    who = None if holder is None else holder.owner or holder.command
    return {**row, **board}, Told(label, name, idle_seconds, None if who is None else cut(who))


def _profile(gpu: Gpu, gpu_instance: int | None) -> str | None:
    """Return the profile of a GPU instance: 3g.40gb, also of one divided into 1c.3g.40gb ..."""
    for each in gpu.device.instances:
        if each.gpu_instance == gpu_instance:
            return cut(each.profile.split("c.", 1)[-1])
    return None


def _holder(share: Share) -> dict[str, Any] | None:
    holder = share.holder
    if holder is None:
        return None
    return known(
        owner=None if holder.owner is None else cut(holder.owner),
        command=None if holder.command is None else cut(holder.command),
        **{"class": cut(holder.workload)},
    )


def _bounds(share: Share) -> dict[str, Any]:
    """Return the FLOP/s that are possible, and the bytes/s where those are not measured."""
    roofline, saturation, ceilings = share.roofline, share.saturation, share.ceilings
    flops = None if roofline is None else roofline.flops_bounds_per_second
    if flops is None or not flops.upper:
        return {}
    dram = None if saturation is None else saturation.unmeasured.get("dram")
    bandwidth = None if ceilings is None else ceilings.memory_bandwidth_bytes_per_second
    traffic = None
    if dram is not None and bandwidth is not None:
        traffic = [rounded(dram.lower * bandwidth), rounded(dram.upper * bandwidth)]
    return {"flops_bounds": [rounded(flops.lower), rounded(flops.upper)], "bytes_bounds": traffic}
