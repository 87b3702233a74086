# SPDX-License-Identifier: Apache-2.0
"""What this process did for each (job, rank), and when that is reported."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING

from . import identity, reporter
from .failures import FAILURES, failed
from .totals import Totals

if TYPE_CHECKING:
    from .lanes import Lane

NEVER = 1 << 63
"""A due time that no clock reaches."""
SECOND = 1_000_000_000
RETRY_SECONDS = 5
"""Until the daemon is looked for again where there was none."""


class Run:
    """One (job, rank) of this process: one stream of reports under one random id."""

    def __init__(self, job: str | None, rank: int | None, instrumentation: str) -> None:
        self.id = os.urandom(16).hex()
        self.named = job is not None
        self.job = identity.job_name(job)
        self.rank = rank
        """None until the first report, which asks for it."""
        self.instrumentation = instrumentation
        self.precision: str | None = None
        self.loader: dict[str, int | bool | None] = {}
        """What is known of the data loader, by the keys of the protocol."""
        self.due_ns = NEVER
        """When the next report is due, on the clock of the lanes."""
        self.optimizer_seen = False
        self.over = False
        """True in a forked child of what its parent did: that is not the child's to report."""
        self.report = reporter.Report(self)
        self._lock = threading.RLock()
        self._lanes: list[Lane] = []
        self._ended = Totals()
        self._published = Totals()

    def join(self, lane: Lane) -> None:
        """Take in the lane of a thread, and fold those whose thread has ended."""
        with self._lock:
            going = []
            for other in self._lanes:
                if other.ended():
                    self._ended.add(other)
                else:
                    going.append(other)
            self._lanes = [*going, lane]

    def totals(self) -> Totals:
        """Return the totals over all threads; they never fall.

        They could: batches count as steps until an optimizer is first seen to step, and it may
        step less often.
        """
        totals = self._ended.copy()
        for lane in self._lanes:
            totals.add(lane)
        last = self._published
        totals.steps = max(totals.steps, last.steps)
        if last.flops is not None:
            totals.flops = max(totals.flops or 0, last.flops)
        self._published = totals
        return totals

    def start(self, now_ns: int) -> None:
        """Let the first report be due: the job has begun to work."""
        if self.due_ns == NEVER and not self.over:
            self.due_ns = now_ns
            PROCESS.flush_at_exit()

    def tell(self, now_ns: int, *, ending: bool = False) -> None:
        """Send a report, unless another thread is at it; the next is due in a second.

        A signal handler of the job may come in between, so nothing here waits for a lock.
        """
        if self.over or self.due_ns == NEVER or not self._lock.acquire(blocking=False):
            return
        try:
            self.due_ns = now_ns + SECOND
            if not self.report.send(self.totals(), now_ns, ending=ending):
                self.due_ns = now_ns + RETRY_SECONDS * SECOND
        except Exception as error:
            failed(error)
        finally:
            self._lock.release()


class Process:
    """The runs of this process."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str | None, int | None], Run] = {}
        self.instrumentation = "client"
        """auto where the job was started with automatic instrumentation."""
        self.generation = 0
        """Counts forks: what was remembered in an earlier one is the parent's."""
        self._lock = threading.RLock()
        self._first: Run | None = None
        self._flushing = False

    def run(self, job: str | None, rank: int | None) -> Run:
        """Return the run of this job and rank; without a job the first one named here.

        What was counted before any name was given belongs to the first one that is.
        """
        with self._lock:
            run = self.runs.get((job, rank))
            if run is None:
                run = self._known(job, rank) or Run(job, rank, self.instrumentation)
                self._first = self._first or run
                self.runs[job, rank] = run
            return run

    def _known(self, job: str | None, rank: int | None) -> Run | None:
        first = self._first
        if first is None or rank not in (None, first.rank):
            return None
        if job is not None and not first.named and first.due_ns == NEVER:
            first.job, first.named = identity.job_name(job), True
        return first if job is None or identity.job_name(job) == first.job else None

    def flush(self) -> None:
        """Send what is left: the process ends."""
        for run in set(self.runs.values()):
            run.tell(NEVER, ending=True)

    def flush_at_exit(self) -> None:
        """Have `flush` called when this process ends, also where it is one of multiprocessing's.

        Those leave by ``os._exit`` after their own finalizers, which a child must register itself.
        """
        if self._flushing:
            return
        self._flushing = True
        atexit.register(self.flush)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.flush, exitpriority=0)

    def forget(self) -> None:
        """Begin anew in a forked child: nothing that the parent did is the child's."""
        for run in self.runs.values():
            run.over = True
            run.due_ns = NEVER
        self.runs = {}
        self.generation += 1
        self._lock = threading.RLock()
        self._first = None
        self._flushing = False
        FAILURES.reset()


PROCESS = Process()
os.register_at_fork(after_in_child=PROCESS.forget)
