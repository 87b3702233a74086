# SPDX-License-Identifier: Apache-2.0
"""Whether a share does nothing, whether someone holds it, and who."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exporter.model.reading import COMMAND_LENGTH, Activity, Memory, Process, Vitals
from exporter.model.snapshot import Holder
from exporter.model.workload import ShareWork


@dataclass(frozen=True, slots=True)
class IdleRules:
    """When an interval counts as idle, and what counts as holding."""

    activity_ratio: float = 0.01
    """Every activity of an idle interval is below this."""
    link_bytes_per_second: float = 10e6
    """PCIe and NVLink together move less than this: loading a model is not idle."""
    held_memory_bytes: int = 500 * 1024 * 1024
    """Where processes cannot be listed, a share with more used memory than this is held."""
    ignored_commands: frozenset[str] = frozenset(
        {
            "nvidia-cuda-mps-server",
            "Xorg",
            "gnome-shell",
            "nv-hostengine",
            "dcgm-exporter",
            "nvidia-persistenced",
        }
    )


def busy_ratio(activity: Activity | None, utilization_ratio: float | None) -> float | None:
    """Return GR, the engine activity, else U; None where neither is known."""
    engine = None if activity is None else activity.engine
    return utilization_ratio if engine is None else engine


def is_idle(
    activity: Activity | None,
    utilization_ratio: float | None,
    vitals: Vitals | None,
    link_bytes_per_second: float | None,
    rules: IdleRules,
    memory_utilization_ratio: float | None = None,
) -> bool | None:
    """Return whether nothing happened in the interval; None where neither GR nor U is known.

        idle = max(GR or U, SM, DRAM or m, encoder, decoder, JPEG, OFA) < 1 %
               and PCIe + NVLink < 10 MB/s, where readable

    U and m are used where GR and DRAM are not read: copies run without a kernel, so a model that is
    being loaded shows in m alone. These and `vitals`, which gives the video engines, are None where
    the board's readings are not this share's.
    """
    busy = busy_ratio(activity, utilization_ratio)
    if busy is None:
        return None
    if link_bytes_per_second is not None and link_bytes_per_second >= rules.link_bytes_per_second:
        return False
    ratios: list[float | None] = [busy]
    if activity is None or activity.dram is None:
        ratios.append(memory_utilization_ratio)
    if activity is not None:
        ratios += (activity.sm, activity.dram)
        ratios += (activity.encoder, activity.decoder, activity.jpeg, activity.ofa)
    if vitals is not None:
        ratios += (vitals.encoder_ratio, vitals.decoder_ratio, vitals.jpeg_ratio, vitals.ofa_ratio)
    return not any(ratio is not None and ratio >= rules.activity_ratio for ratio in ratios)


def is_held(
    processes: Sequence[Process] | None,
    memory: Memory | None,
    rules: IdleRules,
    *,
    coherent_memory: bool = False,
) -> bool | None:
    """Return whether someone keeps the share from others; None where that is not known.

    A compute or MPS process holds it unless its command is ignored; a process without a known name
    holds, and a graphics process does not. Where processes cannot be listed, the used memory
    decides, except on coherent memory, where it means little.
    """
    if processes is None:
        if memory is None or coherent_memory:
            return None
        return memory.used_bytes > rules.held_memory_bytes
    return bool(holding(processes, rules))


def holding(processes: Sequence[Process], rules: IdleRules) -> list[Process]:
    """Return the processes that hold the share, by the rule of `is_held`."""
    ignored = {command[:COMMAND_LENGTH] for command in rules.ignored_commands}
    return [
        process
        for process in processes
        if process.kind != "graphics"
        and (process.command is None or process.command[:COMMAND_LENGTH] not in ignored)
    ]


def holder(
    processes: Sequence[Process] | None, held: bool | None, rules: IdleRules
) -> Holder | None:
    """Return the process with the most memory, of equal ones the lowest pid; None if not held."""
    if not held:
        return None
    found = holding(processes or (), rules)
    if not found:
        return Holder()
    largest = min(found, key=lambda process: (-(process.used_bytes or 0), process.pid))
    return Holder(largest.owner, largest.command, largest.work_class or "other", pid=largest.pid)


def with_workload(holder: Holder | None, work: ShareWork) -> Holder | None:
    """Return the holder with the workload of its process, else with the only one there is."""
    if holder is None:
        return None
    workload = None if holder.pid is None else work.of_process.get(holder.pid)
    if workload is None and not work.of_process and len(work.workloads) == 1:
        workload = work.workloads[0]
    return holder if workload is None else replace(holder, workload=workload)
