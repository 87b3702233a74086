# SPDX-License-Identifier: Apache-2.0
"""What a share is like beside the others of the node: its job's ranks, GPUs of its model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from exporter.derive.waits import Place
from exporter.model.snapshot import Gpu, Rank, Share

LEAST_IDLE_SECONDS = 60.0
"""A sibling that is idle for less may be in a pause of its work."""


Evidence = Mapping[str, float | None]


def peers(
    gpus: Sequence[Gpu], ranks: Sequence[Rank], live: Mapping[Place, Sequence[Rank]]
) -> dict[Place, Evidence]:
    """Return what other shares say of each share that is up, by its place, as are `live` ranks."""
    shares: dict[Place, tuple[Gpu, Share]] = {
        (gpu.device.uuid, share.gpu_instance): (gpu, share)
        for gpu in gpus
        if gpu.up
        for share in gpu.shares
    }
    if len(shares) < 2:
        return {}
    by_job: dict[str, list[Place]] = defaultdict(list)
    for place, here in live.items():
        for job in {rank.job for rank in here if rank.verified}:
            by_job[job].append(place)
    by_pid = _places_of(shares, _pids)
    by_work = _places_of(shares, _works)
    found: dict[Place, Evidence] = {}
    for place, (gpu, share) in shares.items():
        jobs = [name for name in by_job if place in by_job[name]]
        its_job = jobs[0] if len(jobs) == 1 else None
        mates = [] if its_job is None else by_job[its_job]
        siblings = {*mates}.union(
            *(by_pid[pid] for pid in _pids(share)), *(by_work[work] for work in _works(share))
        )
        found[place] = {
            "gpus_of_process_count": max(
                (len({uuid for uuid, _ in by_pid[pid]}) for pid in _pids(share)), default=None
            ),
            "idle_siblings_count": sum(
                _is_held_idle(shares[each][1]) for each in siblings - {place} if each in shares
            ),
            **_of_job(its_job, ranks, live.get(place, ())),
            **_beside(gpu, [shares[each][0] for each in mates if each in shares]),
        }
    return found


def _places_of(
    shares: Mapping[Place, tuple[Gpu, Share]], names: Callable[[Share], Iterable[object]]
) -> dict[object, set[Place]]:
    found: dict[object, set[Place]] = defaultdict(set)
    for place, (_, share) in shares.items():
        for name in names(share):
            found[name].add(place)
    return found


def _pids(share: Share) -> set[int]:
    return {each.pid for each in share.processes or () if each.kind != "graphics"}


def _works(share: Share) -> set[object]:
    """Return the workloads of the processes on a share."""
    work = share.holder and share.holder.workload
    return {work} if work else set()


def _is_held_idle(share: Share) -> bool:
    idle = share.totals.idle_for_seconds
    return bool(share.held) and idle is not None and idle >= LEAST_IDLE_SECONDS


def _of_job(
    job: str | None, ranks: Sequence[Rank], here: Sequence[Rank]
) -> dict[str, float | None]:
    """Compare a share's wait for data with that of the other ranks of its job."""
    here = [rank for rank in here if rank.job == job and rank.verified]
    mates = [rank for rank in ranks if rank.job == job and rank.verified and rank.processes]
    known = [rank.data_wait_ratio for rank in mates if rank.data_wait_ratio is not None]
    own = [rank.data_wait_ratio for rank in here if rank.data_wait_ratio is not None]
    above = max(own) - median(known) if len(known) >= 2 and own else None
    steps = [rank.totals.steps for rank in mates]
    middle = median(steps) if steps else 0.0
    return {
        "ranks_count": len(mates) if mates else None,
        "data_wait_above_median_ratio": above,
        "steps_of_median_ratio": here[0].totals.steps / middle if here and middle else None,
    }


def _beside(gpu: Gpu, mates: Sequence[Gpu]) -> dict[str, float | None]:
    """Compare its clock with that of the other GPUs of its model in the same job."""
    others = [each for each in mates if each is not gpu and each.device.name == gpu.device.name]
    own, clocks = _clock(gpu), [clock for each in others if (clock := _clock(each))]
    return {
        "peers_count": len(others) or None,
        "clock_of_peers_ratio": own / median(clocks) if own is not None and clocks else None,
    }


def _clock(gpu: Gpu) -> float | None:
    vitals = gpu.vitals
    if vitals is None:
        return None
    return vitals.busy_sm_clock_hertz or vitals.clock_hertz.get("sm")
