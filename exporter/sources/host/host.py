# SPDX-License-Identifier: Apache-2.0
"""The source `proc`: one thread samples the loop and the workers of watched processes at 10 Hz."""

from __future__ import annotations

import logging
import random
import resource
import threading
from collections import Counter, deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from errno import EMFILE, ENFILE
from pathlib import Path

from exporter.clock import Clock
from exporter.model.host import (
    ASLEEP,
    AT_REST,
    AT_WORK,
    RUNNING,
    STOPPED,
    HostTotals,
    Seen,
    ThreadStates,
)
from exporter.model.snapshot import SourceState
from exporter.sources.host.limits import cores, freezer
from exporter.sources.host.thread import (
    FILES,
    WAITS_FOR_BATCH,
    WAITS_FOR_ORDERS,
    WatchedThread,
    family,
)
from exporter.sources.interface import PROC
from exporter.sources.proc.procfs import read_file, start_time, stat_fields

SPACING_SECONDS = 0.05, 0.15
"""Samples come at random distances, so that they are not in step with a periodic loop."""
TOTALS_SECONDS = 2.0
LOOK_SECONDS = 5.0
"""How often workers are looked for; after one has ended, at once but at most every second."""
SHORTEST_LOOK_SECONDS = 1.0
WITHOUT_WORKERS_SECONDS = 30.0
"""How long a process is sampled on after its last worker was seen: the next epoch starts others."""
OTHERS_DESCRIPTORS, MOST_DESCRIPTORS = 600, 4096
"""Of the limit of open files, those left to connections and GPUs, and the most that count."""
MOST_STATES = 1200
"""Of two minutes: more come together only while nobody takes them."""
HOST, IO, WAITS = "host", "host_io", "host_waits"
"""Groups of readings that may be absent."""
NO_PERMISSION, BUSY = "no_permission", "busy"

log = logging.getLogger(__name__)


class WatchedProcess:
    """One process, its loop's thread and its workers; for the sampling thread."""

    def __init__(self, procfs: str, sysfs: str, pid: int) -> None:
        self.pid = pid
        self._procfs, self._sysfs = procfs, sysfs
        self._loop = pid
        self._threads: dict[int, WatchedThread] = {}
        """By thread id: that of the loop first, then those of the workers."""
        self._started = start_time(procfs, pid)
        self._freezer: Path | None = None
        self._read = [0, 0]
        """Bytes, and calls, of all its readers so far, those included that have ended."""
        self._read_before: dict[int, tuple[int, int]] = {}
        """By pid: what was counted of it."""
        self._io_hidden = False
        self.look_at = self._totals_at = self.sampled_until = float("-inf")
        self._gone = False
        self._asleep: Counter[str] = Counter()
        """How often threads were in each state since the last count."""
        self.states: deque[ThreadStates] = deque(maxlen=MOST_STATES)
        self.totals: HostTotals | None = None
        self.problems: dict[str, str] = {}

    def close(self) -> None:
        """Close all files."""
        self._keep(())

    @property
    def _workers(self) -> list[int]:
        return [tid for tid in self._threads if tid != self._loop]

    def take(self) -> Seen:
        """Return the samples since the last call; for any thread."""
        states = tuple(self.states.popleft() for _ in range(len(self.states)))
        workers = len(self._threads) - 1  # read at once: the sampling thread goes on
        # Without workers it may load in threads: how many it has is not known.
        return Seen(states, self.totals, workers if workers > 0 else None, self.problems)

    def sample(self, now: float, threads: int) -> None:
        """Sample the process once, if it has or had workers; keep at most `threads` open."""
        if self._gone:
            return
        if now >= self.look_at:
            self._look(now, threads)
        if not self._threads or now >= self.sampled_until:
            return
        main, *states = (self._letter(tid, now) for tid in list(self._threads))
        letters = "".join(states)
        if not main:
            return
        if RUNNING not in main + letters and self._is_frozen():
            main, letters = STOPPED, STOPPED * len(letters)
        self._asleep.update(main + letters)
        self.states.append(ThreadStates(now, main, letters))
        if now >= self._totals_at:
            self._totals_at = now + TOTALS_SECONDS
            self._count(now)

    def _is_frozen(self) -> bool:
        """Return whether its control group of version 1 is frozen: a thread that sleeps in a timer
        or a futex does not show it."""
        with suppress(OSError):
            return self._freezer is not None and "FROZEN" in self._freezer.read_text()
        return False

    def _letter(self, tid: int, now: float) -> str:
        """Return the state of a thread; once it has ended nothing, and look for others soon.

        A process that has ended is not opened again: its pid may be another's by then.
        """
        thread = self._threads.get(tid)
        if thread is None:  # the loop has ended just now
            return ""
        try:
            return thread.state()
        except OSError:
            is_loop = tid == self._loop
            self._gone = is_loop and tid == self.pid
            self._keep(() if is_loop else self._threads.keys() - {tid})
            self.look_at = min(self.look_at, now + SHORTEST_LOOK_SECONDS * (not is_loop))
            return ""

    def _keep(self, tids: Collection[int]) -> None:
        for tid in [each for each in self._threads if each not in tids]:
            self._threads.pop(tid).close()

    def _look(self, now: float, threads: int) -> None:
        self.look_at = now + LOOK_SECONDS
        found = family(self._procfs, self.pid)
        if found.workers:
            self.sampled_until = now + WITHOUT_WORKERS_SECONDS
        wanted = {found.loop: self.pid} | {worker: worker for worker in found.workers}
        self._keep(wanted if found.loop == self._loop else ())
        self._loop = found.loop
        problem = BUSY if len(wanted) > threads else self._open(wanted)
        if problem is not None:
            self.close()
        self.problems = {key: state for key, state in self.problems.items() if key != HOST}
        self.problems |= {} if problem is None else {HOST: problem}
        self._freezer = freezer(self._procfs, self._sysfs, self.pid)
        if start_time(self._procfs, self.pid) != self._started:
            self._gone = True  # the files opened may be another process's
            self.close()

    def _open(self, wanted: Mapping[int, int]) -> str | None:
        """Open threads, given with their process; return why none can be watched."""
        for tid in wanted.keys() - self._threads.keys():
            waits = WAITS_FOR_BATCH if tid == self._loop else WAITS_FOR_ORDERS
            try:
                self._threads[tid] = WatchedThread(self._procfs, wanted[tid], tid, waits)
            except OSError as error:
                if error.errno in (EMFILE, ENFILE):
                    return BUSY
        if self._loop not in self._threads:
            return NO_PERMISSION  # hidden, or gone
        self._threads = {tid: self._threads[tid] for tid in wanted if tid in self._threads}
        return None

    def _count(self, now: float) -> None:
        """Add the activity of the process and its workers since the last count."""
        before, self._read_before = self._read_before, {}
        for pid in self._workers or [self.pid]:
            said = read_file(self._procfs, pid, "io").split()
            if len(said) < 6:
                self._io_hidden |= bool(stat_fields(self._procfs, pid))  # otherwise it has ended
                continue
            self._read_before[pid] = now_read = int(said[1]), int(said[5])
            for place, amount in enumerate(now_read):
                self._read[place] += max(0, amount - before.get(pid, now_read)[place])
        placed = self._asleep[AT_REST] + self._asleep[AT_WORK]
        absent = {IO: self._io_hidden, WAITS: self._asleep[ASLEEP] > placed}
        self.problems = {group: NO_PERMISSION for group, is_absent in absent.items() if is_absent}
        self._asleep.clear()
        limit = cores(self._procfs, self._sysfs, self.pid)
        self.totals = HostTotals(
            now,
            None if limit is None else limit.busy_seconds,
            None if self._io_hidden else self._read[0],
            None if self._io_hidden else self._read[1],
            None if limit is None else limit.number,
        )


class HostActivityReader:
    """The watched processes of this node."""

    name = PROC

    def __init__(self, procfs: str, sysfs: str, clock: Clock) -> None:
        """Take the paths of the host's /proc and /sys."""
        self._procfs, self._sysfs = procfs, sysfs
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: frozenset[int] = frozenset()
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._watched: dict[int, WatchedProcess] = {}
        self._seconds: float | None = None
        self._failures = 0
        self._failed = False
        self._thread = threading.Thread(target=self._run, name=PROC, daemon=True)

    def start(self) -> None:
        """Start the thread, which sleeps until there is something to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._stopped.set()
        self._changed.set()

    def watch(self, pids: frozenset[int]) -> None:
        """Sample these processes from now on, and no others."""
        if pids != self._wanted:
            self._wanted = pids
            self._changed.set()

    def take(self) -> dict[int, Seen]:
        """Return the samples since the last call, by pid."""
        with self._lock:
            return {pid: process.take() for pid, process in self._watched.items()}

    @property
    def state(self) -> SourceState | None:
        """Its state; None until it has sampled anything."""
        if self._seconds is None:
            return None
        return SourceState(not self._failed, self._seconds, self._failures)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._changed.clear()
            try:
                self.sample()
            except Exception:
                self._failures += 1
                if not self._failed:
                    log.exception("source %s", PROC)
                self._failed = True
            self._changed.wait(self.between_seconds() if self._watched else None)

    def between_seconds(self) -> float:
        """Return how long to wait until the next sample; where no process has workers, until the
        next look for some."""
        now = self._clock.monotonic()
        watched = self._watched.values()
        if all(now >= process.sampled_until for process in watched):
            look_at = min((process.look_at for process in watched), default=now)
            return max(look_at - now, SHORTEST_LOOK_SECONDS)
        return random.uniform(*SPACING_SECONDS)  # noqa: S311

    def sample(self) -> None:
        """Sample each watched process once."""
        wanted = self._wanted
        with self._lock:
            for pid in self._watched.keys() - wanted:
                self._watched.pop(pid).close()
            for pid in wanted - self._watched.keys():
                self._watched[pid] = WatchedProcess(self._procfs, self._sysfs, pid)
        if not wanted:
            return
        began = self._clock.monotonic()
        for process in self._watched.values():
            process.sample(self._clock.monotonic(), most_threads() // len(wanted))
        self._seconds = self._clock.monotonic() - began
        self._failed = False


def most_threads() -> int:
    """Return how many threads may be kept open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, min(soft, MOST_DESCRIPTORS) - OTHERS_DESCRIPTORS) // FILES
