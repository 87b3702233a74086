# SPDX-License-Identifier: Apache-2.0
"""Which threads are a process's loop and workers; what state each is in, and where it sleeps,
through files of /proc that stay open."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from exporter.model.host import ASLEEP, AT_REST, AT_WORK, BLOCKED, RUNNING, STOPPED, WORKER
from exporter.sources.proc.procfs import STATE, command_name, read_file

MOST_THREADS = 4096
FILES = 3
"""Descriptors that a thread takes."""
LONGEST_BYTES = 1024
WAITS_FOR_ORDERS = ("poll_schedule_timeout", "do_poll", "do_sys_poll", "pipe_read")
"""Functions of the kernel in which a worker of PyTorch's DataLoader waits for the next batch to
load: it polls a pipe (CPython, multiprocessing/connection.py)."""
WAITS_FOR_BATCH = (*WAITS_FOR_ORDERS, "futex")
"""Where the loop waits for a batch: likewise or, with pin_memory, for a thread of its own."""
FROZEN = ("refrigerator", "freezer", "do_signal_stop", "ptrace_stop", "get_signal")
"""Where a stopped thread sleeps, and one of a frozen control group of version 2."""
RUNS = "0"
"""What wchan says of a thread that is not asleep, and of all to those who may not see it."""
TIMES_SCHEDULED = 2
"""Third field of schedstat."""


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


class WatchedThread:
    """One thread, until ProcessLookupError; a later thread with the same id is another one."""

    def __init__(self, procfs: str, pid: int, tid: int, waits: tuple[str, ...]) -> None:
        """Open it, or raise OSError; `waits` are the functions in which it is at rest."""
        folder = f"{procfs}/{pid}/task/{tid}"
        self.tid = tid
        self._waits = waits
        self._opened = [_open(f"{folder}/stat")]
        self._wchan: int | None = None
        self._schedstat: int | None = None
        self._scheduled = b""
        try:
            self._wchan, self._schedstat = map(
                self._open_too, (f"{folder}/wchan", f"{folder}/schedstat")
            )
        except OSError:  # no file can be opened any more
            self.close()
            raise

    def _open_too(self, path: str) -> int | None:
        with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
            self._opened.append(_open(path))
            return self._opened[-1]
        return None

    def close(self) -> None:
        """Close its files."""
        while self._opened:
            os.close(self._opened.pop())

    def state(self) -> str:
        """Return its state by a letter of `exporter.model.host`; raise ProcessLookupError if it is
        gone. A thread at rest that has run since the last call is only asleep: it may have worked.
        """
        where, letter = self._where(), "S"
        if not where.startswith(self._waits):
            letter = self._stat()
            if letter == "S" and where == RUNS:
                where = self._where()  # it has fallen asleep in between
        before, self._scheduled = self._scheduled, self._slices()
        if any(each in where for each in FROZEN):
            return STOPPED
        if letter != "S":
            return letter if letter in (RUNNING, BLOCKED) else STOPPED
        if where == RUNS:
            return ASLEEP
        if not where.startswith(self._waits):
            return AT_WORK
        return AT_REST if self._scheduled and before == self._scheduled else ASLEEP

    def _where(self) -> str:
        if self._wchan is not None:
            with suppress(PermissionError):
                where = os.pread(self._wchan, LONGEST_BYTES, 0)
                return where.decode("ascii", "replace") or RUNS
        return RUNS

    def _slices(self) -> bytes:
        """Return how often it was given a CPU; empty where that is not known."""
        if self._schedstat is None:
            return b""
        return b"".join(os.pread(self._schedstat, LONGEST_BYTES, 0).split()[TIMES_SCHEDULED:])

    def _stat(self) -> str:
        stat = os.pread(self._opened[0], LONGEST_BYTES, 0)
        letter = stat.rpartition(b")")[2].split(None, STATE + 1)[STATE].decode()
        if letter in "ZXx":
            raise ProcessLookupError(self.tid)
        return letter


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
