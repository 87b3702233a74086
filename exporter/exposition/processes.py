# SPDX-License-Identifier: Apache-2.0
"""The processes on a GPU, and the memory of each of them, which is published only if enabled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from exporter.exposition.family import Family, gauge
from exporter.exposition.labels import Label
from exporter.exposition.parts import PROCESSES, LabelValues, Rows
from exporter.exposition.values import text
from exporter.model.reading import PROCESS_KINDS, Process, process_counts
from exporter.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Whether the memory of each process is published, and of how many processes of a share."""

    enabled: bool = False
    rows_per_share: int = 32


def _memory_rows(processes: Iterable[Process]) -> list[tuple[LabelValues, int]]:
    """Return one row for each process whose memory is known, the largest first.

    A process is listed once for each kind of context that it has; its memory is the same.
    """
    rows: dict[LabelValues, int] = {}
    for process in processes:
        if process.used_bytes is not None:
            labels = (str(process.pid), text(process.command), text(process.owner))
            rows[labels] = max(process.used_bytes, rows.get(labels, 0))
    return sorted(rows.items(), key=lambda row: row[1], reverse=True)


PROCESS_MEMORY = gauge(
    "gpu_process_memory_bytes",
    "bytes",
    "full",
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

FAMILIES: tuple[Family, ...] = (
    gauge(
        "gpu_processes",
        "",
        "core",
        "Processes that the driver lists; one that uses both CUDA and graphics is in two rows.",
        "nvmlDeviceGetComputeRunningProcesses, GraphicsRunningProcesses and "
        "MPSComputeRunningProcesses, at the slow cadence",
        PROCESSES.by_label(
            Label("type", PROCESS_KINDS, full_values=("graphics", "mps")), process_counts
        ),
    ),
    PROCESS_MEMORY,
)


def limited(families: Iterable[Family], memory: ProcessMemory) -> Iterator[Family]:
    """Yield the families; that of the memory of each process only as far as it is wanted."""

    def largest(processes: Iterable[Process]) -> Rows:
        return _memory_rows(processes)[: memory.rows_per_share]

    for family in families:
        if family is not PROCESS_MEMORY:
            yield family
        elif memory.enabled:
            yield replace(family, reader=replace(family.reader, read=largest))


def dropped_series(snapshot: Snapshot, memory: ProcessMemory) -> dict[str, int]:
    """Count the series of this snapshot that the limit cuts off, by family."""
    dropped = 0
    for gpu in snapshot.gpus if memory.enabled else ():
        for share in gpu.shares if gpu.up else ():
            dropped += max(0, len(_memory_rows(share.processes or ())) - memory.rows_per_share)
    return {PROCESS_MEMORY.name: dropped}
