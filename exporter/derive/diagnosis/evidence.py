# SPDX-License-Identifier: Apache-2.0
"""The evidence of one share: what is known of it, its jobs and their host, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.derive import waits
from exporter.derive.diagnosis.peers import Evidence
from exporter.derive.topology import numa_misaligned_ratio
from exporter.model.diagnosis import HostActivity
from exporter.model.host import WORKER
from exporter.model.reading import COMPUTE_KINDS, Device
from exporter.model.snapshot import Gpu, Rank, Share

FIRST_WORKERS = 4
"""The number of workers to begin with (stas00/ml-engineering, dataloader)."""
THERMAL = {"sw_thermal", "hw_thermal"}
OF_LOOP = ("h2d", "checkpoint", "logging")
"""The phases whose share of the loop is evidence."""


def share_evidence(
    gpu: Gpu, share: Share, ranks: Sequence[Rank], now: float, beside: Evidence
) -> dict[str, float]:
    """Return what is known of a share whose live ranks are `ranks` at the Unix time `now`.

    `beside` is what `peers` says of it.
    """
    verified = [rank for rank in ranks if rank.verified]
    worst = max(verified, key=lambda rank: rank.data_wait_ratio or 0.0, default=None)
    stall = waits.data_stall(share, ranks, now)
    host = share.host if worst is None or worst.host is None else worst.host
    found: dict[str, float | None] = {
        **_use(share),
        **_board(gpu),
        **_processes(share, gpu.device),
        **beside,
        "data_wait_loss_ratio": None if stall is None else stall.lower,
        "data_stall_upper_ratio": None if stall is None else stall.upper,
        "trains": _trains(share, verified),
    }
    if worst is not None:
        found |= loader_evidence(worst) | loop_evidence(worst)
    if host is not None:
        found |= host_evidence(host, found.get("workers_count"))
    found["workers_to_try_count"] = workers_to_try(found)
    return {name: float(value) for name, value in found.items() if value is not None}


def _use(share: Share) -> dict[str, float | None]:
    recent = share.recent
    if recent is None:
        return {}
    active, parts = recent.active_ratio, recent.time_parts
    clock = parts.get("clock", recent.limited_ratio.get("clock"))
    busy = recent.busy_ratio if recent.utilization_ratio is None else recent.utilization_ratio
    return {
        "busy_ratio": busy,
        "idle_ratio": waits.idle_ratio(recent),
        "idle_intervals_ratio": recent.idle_ratio,
        "clock_time_ratio": clock,
        "narrow_time_ratio": parts.get("narrow"),
        "communication_time_ratio": recent.limited_ratio.get("communication"),
        "sm_active_ratio": active.get("sm"),
        "tensor_active_ratio": active.get("tensor", active.get("tensor_fp16")),
        "fma_active_ratio": active.get("fma", active.get("fp32")),
        "memory_used_ratio": _memory_used(share),
        "has_tensor_cores": _tensor_cores(share),
    }


def _tensor_cores(share: Share) -> float | None:
    ceilings = share.ceilings
    return None if ceilings is None else float(ceilings.assumed_precision is not None)


def _memory_used(share: Share) -> float | None:
    memory = share.memory
    if memory is None or memory.unified or not memory.total_bytes:
        return None
    return memory.used_bytes / memory.total_bytes


def _board(gpu: Gpu) -> dict[str, float | None]:
    vitals = gpu.vitals
    if vitals is None or gpu.device.mig:  # of the board, not of an instance
        return {}
    media = [each for each in (vitals.decoder_ratio, vitals.jpeg_ratio) if each is not None]
    reasons = vitals.throttle_reasons
    return {
        "media_engine_ratio": max(media, default=None),
        "power_capped": None if reasons is None else float("sw_power_cap" in reasons),
        "thermal_throttled": None if reasons is None else float(bool(THERMAL & reasons)),
        "pcie_traffic_ratio": _pcie_traffic(gpu),
    }


def _pcie_traffic(gpu: Gpu) -> float | None:
    """Return the busier direction of the link over its peak; of the counters' last interval."""
    peak = gpu.ceilings and gpu.ceilings.link_bandwidth_bytes_per_second.get("pcie")
    activity = gpu.shares[0].activity if gpu.shares else None
    if not peak or activity is None or activity.seconds <= 0.0:
        return None
    moved = [activity.pcie_receive_bytes, activity.pcie_transmit_bytes]
    known = [each / activity.seconds / peak for each in moved if each is not None]
    return max(known, default=None)


def _processes(share: Share, device: Device) -> dict[str, float | None]:
    if share.processes is None:
        return {}
    computing = [each for each in share.processes if each.kind in COMPUTE_KINDS]
    cores = [each.cpu_cores for each in computing if each.cpu_cores is not None]
    apart = [numa_misaligned_ratio(each, device) for each in computing]
    misaligned = [ratio for ratio in apart if ratio is not None]
    orphans = [each for each in computing if each.command == WORKER]
    known = all(each.command is not None for each in computing)
    only_orphans = known and bool(computing) and len(orphans) == len(computing)
    return {
        "process_cores": max(cores, default=None),
        "numa_misaligned_ratio": min(misaligned, default=None),
        "orphan_workers_count": len(orphans) if only_orphans else 0.0 if known else None,
    }


def _trains(share: Share, verified: Sequence[Rank]) -> float | None:
    if verified:
        return 1.0
    return None if share.holder is None else float(share.holder.work_class == "training")


def loader_evidence(rank: Rank) -> dict[str, float | None]:
    """Return the settings and the state of a rank's data loader."""
    loader = rank.loader
    return {
        "workers_count": loader.workers,
        "pinned_memory": _flag(loader.pin_memory),
        "persistent_workers": _flag(loader.persistent_workers),
    }


def loop_evidence(rank: Rank) -> dict[str, float | None]:
    """Return which shares of its loop a rank has spent on other things than training."""
    totals = rank.totals
    if not totals.step_seconds:
        return {}
    spent: dict[str, float | None] = {
        f"{phase}_of_loop_ratio": totals.phase_seconds.get(phase) for phase in OF_LOOP
    }
    spent["loader_start_of_loop_ratio"] = totals.loader_start_seconds
    waited = totals.phase_seconds.get("data")
    per_batch = None if waited is None or not totals.batches else waited / totals.batches
    return {
        **{
            name: None if seconds is None else seconds / totals.step_seconds
            for name, seconds in spent.items()
        },
        "data_wait_per_batch_seconds": per_batch,
    }


def host_evidence(host: HostActivity, workers: float | None) -> dict[str, float | None]:
    """Return what a job does on its host; `workers` is the number that the job states."""
    count = host.workers if workers is None else workers
    if workers is None and not count and host.method != "client":
        count = None  # from outside, a loader of threads, as tf.data's, looks like one without
    cores, busy = host.cores, host.cores_busy
    return {
        "workers_count": count,
        "worker_running_ratio": host.worker_running_ratio,
        "worker_blocked_ratio": host.worker_blocked_ratio,
        "cores_count": cores,
        "free_cores": None if cores is None or busy is None else max(0.0, cores - busy),
        "workers_per_core_ratio": None if count is None or not cores else count / cores,
        "read_size_bytes": host.read_size_bytes,
    }


def workers_to_try(found: Mapping[str, float | None]) -> float | None:
    """Return how many workers to try next: twice as many, as far as cores are free for them."""
    workers, cores, free = (
        found.get(name) for name in ("workers_count", "cores_count", "free_cores")
    )
    if workers is None:
        return None
    most = FIRST_WORKERS if cores is None else max(1.0, cores - 1)  # one is for the loop
    if not workers:
        return float(int(min(FIRST_WORKERS, most)))
    if cores is not None and workers > cores:
        return float(int(most))
    return float(int(min(2 * workers, workers + (free or 0.0))))


def _flag(value: bool | None) -> float | None:
    return None if value is None else float(value)
