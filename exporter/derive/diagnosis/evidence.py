# SPDX-License-Identifier: Apache-2.0
"""The evidence of one share: what is known of it, its jobs and their host, by name; and what a
cause has cost it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from exporter.derive import waits
from exporter.derive.diagnosis.peers import Evidence
from exporter.derive.links import link_rates
from exporter.derive.topology import numa_misaligned_ratio
from exporter.model.host import WORKER, HostActivity
from exporter.model.reading import COMPUTE_KINDS, Device, Process
from exporter.model.snapshot import Bounds, Gpu, Rank, Share
from roofline_job.causes import host_evidence, workers_to_try

THERMAL = {"sw_thermal", "hw_thermal"}
OF_LOOP = ("h2d", "checkpoint", "logging")
"""The phases whose share of the loop is evidence."""


def share_evidence(
    gpu: Gpu, share: Share, ranks: Sequence[Rank], now: float, beside: Evidence
) -> dict[str, float]:
    """Return the evidence of a share whose live ranks are `ranks` at the Unix time `now`.

    `beside` is what `peers` says of it.
    """
    worst = waits.worst_rank(ranks)
    stall = waits.data_stall(share, ranks, now)
    host = (worst and worst.host) or share.host
    trains = None if share.holder is None else share.holder.work_class == "training"
    found: dict[str, float | None] = {
        **_use(share),
        **_board(gpu),
        **_processes(share, gpu.device),
        **beside,
        "data_wait_loss_ratio": None if stall is None else stall.lower,
        "data_stall_upper_ratio": None if stall is None else stall.upper,
        "trains": worst is not None or trains,
    }
    if worst is not None:
        found |= _of_job(worst)
    if host is not None:
        found |= _of_host(host, found.get("workers_count"))
    found["workers_to_try_count"] = workers_to_try(found)
    return {name: float(value) for name, value in found.items() if value is not None}


def _use(share: Share) -> dict[str, float | None]:
    recent, ceilings, memory = share.recent, share.ceilings, share.memory
    if recent is None:
        return {}
    active, parts, limited = recent.active_ratio, recent.time_parts, recent.limited_ratio
    utilization = recent.utilization_ratio
    return {
        "busy_ratio": recent.busy_ratio if utilization is None else utilization,
        "idle_ratio": waits.idle_ratio(recent),
        "idle_intervals_ratio": recent.idle_ratio,
        "clock_time_ratio": parts.get("clock", limited.get("clock")),
        "narrow_time_ratio": parts.get("narrow"),
        "communication_time_ratio": limited.get("communication"),
        "sm_active_ratio": active.get("sm"),
        "tensor_active_ratio": active.get("tensor", active.get("tensor_fp16")),
        "fma_active_ratio": active.get("fma", active.get("fp32")),
        "memory_used_ratio": (
            None if not memory or memory.unified else _part(memory.used_bytes, memory.total_bytes)
        ),
        "has_tensor_cores": None if ceilings is None else ceilings.assumed_precision is not None,
    }


def _board(gpu: Gpu) -> dict[str, float | None]:
    vitals = gpu.vitals
    if vitals is None or gpu.device.mig:  # of the board, not of an instance
        return {}
    links = {} if gpu.ceilings is None else gpu.ceilings.link_bandwidth_bytes_per_second
    activity = gpu.shares[0].activity if gpu.shares else None
    media, reasons = (vitals.decoder_ratio, vitals.jpeg_ratio), vitals.throttle_reasons
    return {
        "media_engine_ratio": max((each for each in media if each is not None), default=None),
        "power_capped": None if reasons is None else "sw_power_cap" in reasons,
        "thermal_throttled": None if reasons is None else not THERMAL.isdisjoint(reasons),
        "pcie_traffic_ratio": _part(link_rates(activity, None, None, None).pcie, links.get("pcie")),
    }


def _processes(share: Share, device: Device) -> dict[str, float | None]:
    computing = [each for each in share.processes or () if each.kind in COMPUTE_KINDS]
    cores = [each.cpu_cores for each in computing]
    apart = [numa_misaligned_ratio(each, device) for each in computing]
    orphaned = share.orphaned_seconds
    return {
        "process_cores": max((each for each in cores if each is not None), default=None),
        "numa_misaligned_ratio": min((each for each in apart if each is not None), default=None),
        "orphaned_seconds": orphaned,
        "orphan_workers_count": None if orphaned is None else len(computing),
    }


def are_orphans(processes: Iterable[Process] | None) -> bool:
    """Return whether all that compute are workers of data loaders: nobody takes their batches."""
    commands = {each.command for each in processes or () if each.kind in COMPUTE_KINDS}
    return commands == {WORKER}


def _of_job(rank: Rank) -> dict[str, float | None]:
    """Return the settings of a rank's data loader, and the shares of its loop by phase."""
    totals, loader = rank.totals, rank.loader
    spent = {phase: totals.phase_seconds.get(phase) for phase in OF_LOOP}
    spent["loader_start"] = totals.loader_start_seconds
    return {
        "checkpoints_count": totals.checkpoints,
        "workers_count": loader.workers,
        "pinned_memory": loader.pin_memory,
        "persistent_workers": loader.persistent_workers,
        "data_wait_per_batch_seconds": _part(totals.phase_seconds.get("data"), totals.batches),
        **{f"{name}_of_loop_ratio": _part(spent[name], totals.step_seconds) for name in spent},
    }


def _part(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _of_host(host: HostActivity, workers: float | None) -> dict[str, float | None]:
    """Return the host activity of a job; `workers` is the number that the job states."""
    count = host.workers if workers is None else workers
    if workers is None and not count and host.method != "client":
        count = None  # from outside, a loader of threads, as tf.data's, looks like one without
    return host_evidence(asdict(host), count)


def recoverable(kind: str | None, share: Share, ranks: Sequence[Rank]) -> Bounds | None:
    """Return the cost of a kind of loss since the job or share is known; None if unknown.

    Without a wait a loop is faster by at least S and at most W (docs/stalls.md). Several ranks on
    one share may wait at the same time, so that the largest S counts, and the sum of all W.
    """
    totals = share.totals
    if kind == "clock":
        slowed = totals.time_seconds.get("clock")
        return None if slowed is None else Bounds(slowed, slowed)
    if kind == "communication":  # how much of it could overlap with work is not known
        alone = totals.limited_seconds.get("communication")
        return None if alone is None else Bounds(0.0, alone)
    phase = kind or ""
    stalled = [rank.totals.phase_gpu_idle_seconds.get(phase, 0.0) for rank in ranks]
    most = sum(rank.totals.phase_seconds.get(phase, 0.0) for rank in ranks)
    if phase == "data":
        stalled += totals.data_stall_lower_seconds.values()
        most = most or max(totals.data_stall_upper_seconds.values(), default=0.0)
    return Bounds(min(max(stalled, default=0.0), most), most) if most else None
