# SPDX-License-Identifier: Apache-2.0
"""The workers of a process's data loaders, and the thread that started them: its loop."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from exporter.model.host import WORKER
from exporter.sources.proc.procfs import arguments, command_name, stat_fields

PARENT = 1
"""Field 4 of /proc/PID/stat, counted from the third."""
MOST_THREADS = 4096

Children = Callable[[int, Iterable[int]], Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Family:
    """A process's loop and workers."""

    loop: int
    """The thread that started the workers; without any the main thread."""
    workers: tuple[int, ...] = ()
    told: bool = True
    """False if children without a worker's name run the process's own program: older releases of
    PyTorch do not name workers."""


def family(procfs: str, pid: int, children: Children, threads: Iterable[int]) -> Family:
    """Return the workers of a process, which may be children of a child that starts them.

    `children` returns the children of some threads of a process, each with its parent thread.
    """
    found: dict[int, int] = {}
    told = True
    own = arguments(procfs, pid)
    for child, thread in children(pid, threads).items():
        if command_name(procfs, child) == WORKER:
            found[child] = thread
            continue
        told = told and (not own or arguments(procfs, child) != own)
        for grandchild in children(child, (child,)):
            if command_name(procfs, grandchild) == WORKER:
                found[grandchild] = thread
    if not found:
        return Family(pid, told=told)
    loop = Counter(found.values()).most_common(1)[0][0]
    return Family(loop, tuple(sorted(found)))


def all_threads(procfs: str, pid: int) -> list[int]:
    """Return the threads of a process, at most 4096; none if it cannot be seen."""
    try:
        return sorted(int(name) for name in os.listdir(f"{procfs}/{pid}/task"))[:MOST_THREADS]
    except (OSError, ValueError):
        return []


def listed_children(procfs: str) -> Children:
    """Return what reads children from the kernel's lists, else from the parents of all processes
    (one look, for one round)."""
    parents: dict[int, int] = {}

    def children(pid: int, threads: Iterable[int]) -> Mapping[int, int]:
        found: dict[int, int] = {}
        for thread in threads:
            try:
                with open(f"{procfs}/{pid}/task/{thread}/children", "rb") as file:
                    found |= dict.fromkeys(map(int, file.read().split()), thread)
            except FileNotFoundError:
                if not os.path.exists(f"{procfs}/{pid}/task/{thread}"):
                    continue
                if not parents:  # a kernel without such lists
                    parents.update(_parents(procfs))
                return {each: pid for each, parent in parents.items() if parent == pid}
            except (OSError, ValueError):
                continue
        return found

    return children


def _parents(procfs: str) -> Iterable[tuple[int, int]]:
    for name in os.listdir(procfs):
        if name.isdecimal():
            fields = stat_fields(procfs, int(name))
            if len(fields) > PARENT:
                yield int(name), int(fields[PARENT])
