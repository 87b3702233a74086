# SPDX-License-Identifier: Apache-2.0
"""The kernel's counts of data loaders' workers while the loop waits for them.

The loop's own thread looks about once a second, where a wait begins and a report is due, and only
if the loop waited for data for a notable part of the time since it last came by here.

How long workers ran, or were ready to, the kernel adds up, so it depends on no moment. How long
they waited for storage it does not. A look sees their states, but loop and workers go in step: a
worker that is seen just after next() has just begun with a batch, and would be seen so each time.
So a look comes before next(), with the time of the loop's own step in between; and states decide
only how the time in which the workers slept, which is known, divides into storage and the rest.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import perf_counter_ns
from typing import NamedTuple

from .degraded import DETAILS

PROC, CGROUPS = "/proc", "/sys/fs/cgroup"
NOTABLE_RATIO = 0.05
"""A loop that waits for data less than this is not looked at."""
KEPT = 10
"""The intervals between looks that a report tells of: some ten seconds."""
LEAST_SLEEPERS = 5
"""So many must be seen before their states say what they sleep for."""
READS_PER_BATCH = 10
"""By which a worker gets the indices of a batch and hands it over (PyTorch 2.13, counted)."""
_SECOND = 1_000_000_000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Worker(NamedTuple):
    """A worker, as the kernel has counted it so far."""

    started: bytes
    state: bytes
    running_seconds: float
    """In which it ran, or was ready to."""
    reads: tuple[int, int] | None
    """Bytes and calls; None where they may not be seen."""


class Look(NamedTuple):
    """The counts at one moment."""

    at_ns: int
    batches: int
    """That the loop had so far."""
    workers: Mapping[int, Worker]
    """By process id."""
    cores: float
    """That they may use."""
    idle_seconds: float | None
    """Of the cores of their affinity, together."""
    quota: tuple[float, float] | None


class Activity:
    """The activity of one thread's loader workers, and the time of its loop."""

    def __init__(self) -> None:
        self.phase_ns: dict[str, int] = {}
        """Up to the last time that it came by: what follows the last batch is not the loop's."""
        self.wall_ns = 0
        self.checkpoints = 0
        """Up to then, too."""
        self.restart_ns = 0
        """In which loaders started workers that they had had before."""
        self._intervals: list[dict[str, float]] = []
        self._recent: deque[dict[str, float]] = deque(maxlen=KEPT)
        self._before: Look | None = None

    def pass_by(
        self,
        phase_ns: Mapping[str, int],
        wall_ns: int,
        batches: int,
        workers: Callable[[], Iterable[int]],
    ) -> None:
        """Note the time of a loop; look at its workers, given by process id, if it waits."""
        waited_ns = phase_ns.get("data", 0) - self.phase_ns.get("data", 0)
        waits = waited_ns > NOTABLE_RATIO * (wall_ns - self.wall_ns)
        self.phase_ns, self.wall_ns = dict(phase_ns), wall_ns
        before, self._before = self._before, None
        try:
            if waits and DETAILS.on:
                self._before = look(batches, workers())
        except Exception as error:
            DETAILS.fail(error)
        if self._before is None:
            self._recent.clear()
        elif before is not None:
            interval = between(before, self._before)
            self._recent.append(interval)
            self._intervals = [added([*self._intervals, interval])]

    def recent(self) -> dict[str, float]:
        """Return their recent rates, by the keys of the protocol; empty if unknown."""
        return rates(added(self._recent))

    def whole(self) -> dict[str, float]:
        """Return their rates over all intervals in which the loop waited."""
        return rates(added(self._intervals))


def look(batches: int, processes: Iterable[int]) -> Look:
    """Read the counts of these workers; those that are gone are left out."""
    found = {process: worker(process) for process in processes}
    workers = {process: each for process, each in found.items() if each is not None}
    affinity = set().union(*map(os.sched_getaffinity, workers or (0,)))
    limit = quota()
    cores = float(len(affinity)) if limit is None else min(len(affinity), limit[0])
    return Look(perf_counter_ns(), batches, workers, cores, _idle_seconds(affinity), limit)


def between(before: Look, now: Look) -> dict[str, float]:
    """Return the differences between two looks at the same workers, as amounts that add up."""
    pairs = [(before.workers.get(process), after) for process, after in now.workers.items()]
    same = [(b, a) for b, a in pairs if b is not None and b.started == a.started]
    seconds = (now.at_ns - before.at_ns) / _SECOND
    if seconds <= 0 or len(same) != len(pairs) or len(pairs) != len(before.workers):
        return {}
    ran = (a.running_seconds - b.running_seconds for b, a in same)
    states = [after.state for after in now.workers.values()]
    found = {
        "seconds": seconds,
        "worker_seconds": len(same) * seconds,
        "running_seconds": sum(min(max(each, 0.0), seconds) for each in ran),
        "sleepers": len(states) - states.count(b"R"),
        "blocked": states.count(b"D"),
        "core_seconds": now.cores * seconds,
    }
    read = [(b.reads, a.reads) for b, a in same if b.reads is not None and a.reads is not None]
    if read and len(read) == len(same):
        batches = now.batches - before.batches
        found["read_bytes"] = sum(a[0] - b[0] for b, a in read)
        found["reads"] = sum(a[1] - b[1] for b, a in read) - READS_PER_BATCH * batches
        found["batches"] = batches
    if before.idle_seconds is not None and now.idle_seconds is not None:
        free = now.idle_seconds - before.idle_seconds
        if before.quota is not None and now.quota is not None:
            free = min(free, now.quota[0] * seconds - now.quota[1] + before.quota[1])
        found["busy_seconds"] = min(max(now.cores * seconds - free, 0.0), found["core_seconds"])
    return found


def added(intervals: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of amounts."""
    found: dict[str, float] = {}
    for interval in intervals:
        for name, amount in interval.items():
            found[name] = found.get(name, 0.0) + amount
    return found


def rates(of: Mapping[str, float]) -> dict[str, float]:
    """Return amounts as rates, by the keys of the protocol, without unknown ones."""
    seconds = of.get("seconds")
    if not seconds:
        return {}
    found = {
        "seconds": seconds,
        "workers": round(of["worker_seconds"] / seconds),
        "cores": of["core_seconds"] / seconds,
    }
    if of["worker_seconds"]:
        running = of["running_seconds"] / of["worker_seconds"]
        found["worker_running_ratio"] = running
        if of["sleepers"] >= LEAST_SLEEPERS:
            found["worker_blocked_ratio"] = (1.0 - running) * of["blocked"] / of["sleepers"]
    if "busy_seconds" in of:
        found["cores_busy"] = of["busy_seconds"] / seconds
    if of.get("reads", 0.0) >= max(1.0, of.get("batches", 0.0)):  # else through memory maps
        found["read_size_bytes"] = of["read_bytes"] / of["reads"]
    return found


def worker(process: int) -> Worker | None:
    """Return the kernel's counts of a process; None once it is gone."""
    folder = f"{PROC}/{process}"
    try:
        fields = _read(f"{folder}/stat").rpartition(b")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        running = _scheduled_seconds(folder) or ticks / _TICKS_PER_SECOND
        return Worker(fields[19], fields[0], running, _reads(folder))
    except (OSError, ValueError, IndexError):
        return None


def _scheduled_seconds(folder: str) -> float | None:
    """Return how long it ran, or waited for a core; None or 0 where the kernel does not count."""
    try:
        ran_ns, delayed_ns, _ = map(int, _read(f"{folder}/schedstat").split())
    except (OSError, ValueError):
        return None
    return (ran_ns + delayed_ns) / _SECOND


def _reads(folder: str) -> tuple[int, int] | None:
    try:
        words = _read(f"{folder}/io").split()
        return int(words[words.index(b"rchar:") + 1]), int(words[words.index(b"syscr:") + 1])
    except (OSError, ValueError):
        return None


def _idle_seconds(cores: Iterable[int]) -> float | None:
    names = {b"cpu%d" % core for core in cores}
    try:
        rows = [line.split() for line in _read(f"{PROC}/stat").splitlines()]
        idle = [int(row[4]) + int(row[5]) for row in rows if row and row[0] in names]
    except (OSError, ValueError, IndexError):
        return None
    return sum(idle) / _TICKS_PER_SECOND if len(idle) == len(names) else None


def quota() -> tuple[float, float] | None:
    """Return the least CPU quota of this process's control groups, and the seconds used of it."""
    try:
        lines = os.fsdecode(_read(f"{PROC}/self/cgroup")).splitlines()
    except OSError:
        return None
    return min(
        (limit for line in lines for limit in _limits(*line.split(":", 2)[1:])), default=None
    )


def _limits(controllers: str, path: str) -> Iterator[tuple[float, float]]:
    """Yield the quotas of a control group and those around it, of either version."""
    if controllers and "cpu" not in controllers.split(","):
        return
    while True:
        try:
            if controllers:
                quota_us = int(_read(f"{CGROUPS}/cpu{path}/cpu.cfs_quota_us"))
                period_us = int(_read(f"{CGROUPS}/cpu{path}/cpu.cfs_period_us"))
                used = int(_read(f"{CGROUPS}/cpuacct{path}/cpuacct.usage")) / _SECOND
            else:
                quota_us, period_us = map(int, _read(f"{CGROUPS}{path}/cpu.max").split())
                used = int(_read(f"{CGROUPS}{path}/cpu.stat").split()[1]) / 1e6
            if quota_us > 0:
                yield quota_us / period_us, used
        except (OSError, ValueError, IndexError):  # no such group here, or "max": no quota
            pass
        if path in ("", "/"):
            return
        path = os.path.dirname(path)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
