# SPDX-License-Identifier: Apache-2.0
"""The workers of a process's data loaders, and the thread that started them: its loop."""

from __future__ import annotations

import os
from collections import Counter
from typing import NamedTuple

from exporter.model.host import WORKER
from exporter.sources.proc.procfs import command_name, read_file

MOST_THREADS = 4096


class Family(NamedTuple):
    """A process's loop and workers."""

    loop: int
    """The thread that started most of the workers; without any the main thread."""
    workers: tuple[int, ...] = ()


def family(procfs: str, pid: int) -> Family:
    """Return the workers of a process: children of one of its threads, or of a child that starts
    them (a forkserver). None are found without the kernel's lists of children."""
    found: dict[int, int] = {}
    for thread in _threads(procfs, pid):
        for child in _children(procfs, pid, thread):
            is_worker = command_name(procfs, child) == WORKER
            for each in (child,) if is_worker else _children(procfs, child, child):
                if is_worker or command_name(procfs, each) == WORKER:
                    found[each] = thread
    if not found:
        return Family(pid)
    return Family(Counter(found.values()).most_common(1)[0][0], tuple(sorted(found)))


def _threads(procfs: str, pid: int) -> list[int]:
    """Return the threads of a process; none if it cannot be seen."""
    try:
        return sorted(int(name) for name in os.listdir(f"{procfs}/{pid}/task"))[:MOST_THREADS]
    except (OSError, ValueError):
        return []


def _children(procfs: str, pid: int, thread: int) -> list[int]:
    """Return the children that a thread has started; none if they cannot be seen."""
    return [int(word) for word in read_file(procfs, pid, f"task/{thread}/children").split()]
