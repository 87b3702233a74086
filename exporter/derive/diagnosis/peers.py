# SPDX-License-Identifier: Apache-2.0
"""Compares a share with its peers: other ranks of its job, other GPUs of its model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from exporter.model.reading import Place
from exporter.model.snapshot import Gpu, Rank, Share

LEAST_IDLE_SECONDS = 60.0
"""A sibling that is idle for less may be in a pause of its work."""
Evidence = Mapping[str, float | None]


def peers(
    gpus: Sequence[Gpu], ranks: Sequence[Rank], live: Mapping[Place, Sequence[Rank]]
) -> dict[Place, Evidence]:
    """Return the evidence by comparison for each share that is up; it and `live` are by place."""
    shares: dict[Place, tuple[Gpu, Share]] = {
        Place(gpu.device.uuid, share.gpu_instance): (gpu, share)
        for gpu in gpus
        if gpu.up
        for share in gpu.shares
    }
    works = {place: _works(share, live.get(place, ())) for place, (_, share) in shares.items()}
    places: dict[object, set[Place]] = defaultdict(set)
    for place, its in works.items():
        for work in its:
            places[work].add(place)
    held: dict[int | None, set[str | None]] = defaultdict(set)
    for place, (_, share) in shares.items():
        held[_holder_pid(share)].add(place.uuid)
    found: dict[Place, Evidence] = {}
    for place, (gpu, share) in shares.items():
        jobs = {rank.job for rank in live.get(place, ()) if rank.verified}
        job = jobs.pop() if len(jobs) == 1 else None
        siblings = set().union(*(places[work] for work in works[place])) - {place}
        found[place] = {
            **({} if job is None else _of_job(job, ranks, live[place])),
            **({} if job is None else _beside(gpu, [shares[at][0] for at in places[job]])),
            "gpus_of_process_count": len(held[pid]) if (pid := _holder_pid(share)) else None,
            "idle_siblings_count": sum(_is_held_idle(shares[each][1]) for each in siblings),
        }
    return found


def _works(share: Share, ranks: Sequence[Rank]) -> set[object]:
    """Return the keys that siblings share: processes, jobs, and the holder's workload."""
    pids = {each.pid for each in share.processes or () if each.kind != "graphics"}
    workload = share.holder and share.holder.workload
    jobs = {rank.job for rank in ranks if rank.verified}
    return {*pids, *jobs, *([workload] if workload else ())}


def _holder_pid(share: Share) -> int | None:
    """Return the process with the most memory: one with a small context is at work elsewhere."""
    return share.holder.pid if share.holder else None


def _is_held_idle(share: Share) -> bool:
    idle = share.totals.idle_for_seconds
    return bool(share.held) and idle is not None and idle >= LEAST_IDLE_SECONDS


def _of_job(job: str, ranks: Sequence[Rank], here: Sequence[Rank]) -> dict[str, float | None]:
    """Compare a share's wait for data with that of the other ranks of its job."""
    here = [rank for rank in here if rank.verified]
    mates = [rank for rank in ranks if rank.job == job and rank.verified and rank.processes]
    known, own = _waits(mates), _waits(here)
    middle = median(rank.totals.steps for rank in mates)
    return {
        "ranks_count": len(mates),
        "data_wait_above_median_ratio": max(own) - median(known) if own else None,
        "steps_of_median_ratio": here[0].totals.steps / middle if middle else None,
    }


def _waits(ranks: Sequence[Rank]) -> list[float]:
    return [rank.data_wait_ratio for rank in ranks if rank.data_wait_ratio is not None]


def _beside(gpu: Gpu, mates: Sequence[Gpu]) -> dict[str, float | None]:
    """Compare its clock with that of the other GPUs of its model in the same job."""
    others = [each for each in mates if each is not gpu and each.device.name == gpu.device.name]
    own, clocks = _clock(gpu), [clock for each in others if (clock := _clock(each))]
    return {
        "peers_count": len(others),
        "clock_of_peers_ratio": own / median(clocks) if own is not None and clocks else None,
    }


def _clock(gpu: Gpu) -> float | None:
    vitals = gpu.vitals
    if vitals is None:
        return None
    return vitals.busy_sm_clock_hertz or vitals.clock_hertz.get("sm")
