# SPDX-License-Identifier: Apache-2.0
"""The processes on a GPU; series per process only if they are enabled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from typing import Any

from exporter.exposition.family import Family, core_gauge, gauge
from exporter.exposition.labels import Label, text
from exporter.exposition.parts import PROCESSES, SHARE, LabelValues, Rows
from exporter.exposition.workloads import STEP, WORKLOAD_LABELS, workload_values
from exporter.model.reading import PROCESS_KINDS, Process, process_counts
from exporter.model.snapshot import Share, Snapshot
from exporter.model.workload import Workload


@dataclass(frozen=True, slots=True)
class ProcessRows:
    """Which families have a series for each process, and for how many processes of a share."""

    memory: bool = False
    utilization: bool = False
    rows_per_share: int = 32


def _memory_rows(processes: Iterable[Process]) -> list[tuple[LabelValues, int]]:
    """Return one row per process with known memory, the largest first.

    The driver lists a process once per kind of context, with the same memory.
    """
    rows: dict[LabelValues, int] = {}
    for process in processes:
        if process.used_bytes is not None:
            labels = (str(process.pid), text(process.command), text(process.owner))
            rows[labels] = max(process.used_bytes, rows.get(labels, 0))
    return sorted(rows.items(), key=lambda row: row[1], reverse=True)


def _utilization_rows(share: Share) -> list[tuple[LabelValues, float]]:
    """Return one row per process with a known share of the SM time, the largest first."""
    rows: dict[LabelValues, float] = {}
    for process in share.processes or ():
        if process.sm_utilization_ratio is not None:
            work = _work_values(share.work.of_process.get(process.pid))
            labels = (str(process.pid), text(process.command), *work)
            rows[labels] = process.sm_utilization_ratio
    return sorted(rows.items(), key=lambda row: row[1], reverse=True)


def _work_values(workload: Workload | None) -> tuple[str, ...]:
    """Return the values of `_WORK_LABELS`."""
    if workload is None:
        return ("",) * len(_WORK_LABELS)
    values = zip(WORKLOAD_LABELS, workload_values(workload), strict=True)
    return tuple(value for label, value in values if label is not STEP)


_WORK_LABELS = (
    Label("scheduler", meaning="kubernetes, slurm or container; this and the rest: empty if none"),
    *(label for label in WORKLOAD_LABELS[1:] if label is not STEP),
)
"""Labels for sums over pods, jobs and containers."""

PROCESS_MEMORY = gauge(
    "gpu_process_memory_bytes",
    "Device memory of each process, the largest ones only; off unless enabled.",
    "the driver's process lists, at the slow cadence; command and owner from /proc",
    PROCESSES.rows(
        (
            Label("pid"),
            Label("command", meaning="name of the command, never its arguments"),
            Label("owner", meaning="user who runs it"),
        ),
        _memory_rows,
    ),
)

PROCESS_UTILIZATION = gauge(
    "gpu_process_sm_utilization_ratio",
    "Share of the SM time in which each process had a kernel running, the largest ones only; off "
    "unless enabled. The driver samples it: it is not how much of the SMs was in use, and the sum "
    "need not reach gpu_utilization_ratio. Under MPS it may be counted for the server; none under "
    "MIG.",
    "nvmlDeviceGetProcessUtilization, since the last read at the slow cadence; labels from /proc, "
    "control groups and schedulers",
    SHARE.rows(
        (Label("pid"), Label("command", meaning="name of the command"), *_WORK_LABELS),
        _utilization_rows,
    ),
)


PER_PROCESS: Mapping[str, tuple[str, Callable[[Share], Sized]]] = {
    PROCESS_MEMORY.name: ("memory", lambda share: _memory_rows(share.processes or ())),
    PROCESS_UTILIZATION.name: ("utilization", _utilization_rows),
}
"""By family with a series per process: the field of ProcessRows that enables it, and its unlimited
rows of a share."""

CAPPED = (*PER_PROCESS, "gpu_workload_info")
"""The families with a limit of series per share."""

FAMILIES: tuple[Family, ...] = (
    core_gauge(
        "gpu_processes",
        "Processes that the driver lists; one that uses both CUDA and graphics is in two rows.",
        "nvmlDeviceGetComputeRunningProcesses, GraphicsRunningProcesses and "
        "MPSComputeRunningProcesses, at the slow cadence",
        PROCESSES.by_label(
            Label("type", PROCESS_KINDS, full_values=("graphics", "mps")), process_counts
        ),
    ),
    PROCESS_MEMORY,
    PROCESS_UTILIZATION,
)


def limited(families: Iterable[Family], rows: ProcessRows) -> Iterator[Family]:
    """Yield the families; those with a series per process if enabled, with their limit."""

    def largest(read: Callable[[Any], Rows]) -> Callable[[Any], Rows]:
        return lambda subject: list(read(subject))[: rows.rows_per_share]

    for family in families:
        if family.name not in PER_PROCESS:
            yield family
        elif getattr(rows, PER_PROCESS[family.name][0]):
            reader = family.reader
            yield replace(family, reader=replace(reader, read=largest(reader.read)))


def dropped_series(snapshot: Snapshot, rows: ProcessRows) -> dict[str, int]:
    """Count the series of this snapshot that a limit drops, by family."""
    shares = [share for gpu in snapshot.gpus if gpu.up for share in gpu.shares]
    left_out = sum(share.work.left_out for share in shares)
    dropped = {"gpu_workload_info": left_out}
    for name, (option, of_share) in PER_PROCESS.items():
        over = (len(of_share(share)) - rows.rows_per_share for share in shares)
        dropped[name] = sum(max(0, each) for each in over) if getattr(rows, option) else 0
    return dropped
