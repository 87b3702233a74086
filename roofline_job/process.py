# SPDX-License-Identifier: Apache-2.0
"""What this process measures: its lanes, by thread, and the job that they are of."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from threading import get_ident
from typing import Any

from . import identity, names, summary
from .degraded import LOADERS, note
from .termination import before_termination
from .thread_accounts import NEVER, Lane


class Process:
    """The lanes of this process; there is one."""

    def __init__(self) -> None:
        self.automatic = False
        """Whether the job was started with automatic instrumentation."""
        self.lanes: list[Lane] = []
        self.forget()

    def forget(self) -> None:
        """Start over: nothing that the parent of a forked child did belongs to the child."""
        for lane in self.lanes:
            lane.leave()
        self.lanes = []
        self._by_thread: dict[tuple[int, str | None, int | None], Lane] = {}
        self.latest: Lane | None = None
        """The lane in which a loop was last opened."""
        self.trained = False
        """Whether an optimizer ever stepped on a batch of a loop."""
        self._job: str | None = None
        """The name that the job gave first."""
        self._flushing = False

    def here(self) -> Lane | None:
        """Return this thread's first lane, if it has one."""
        thread = get_ident()
        return next((lane for lane in self.lanes if lane.thread == thread), None)

    def lane(self, job: str | None = None, rank: int | None = None) -> Lane | None:
        """Return this thread's lane of a job and rank; None where this process must not report.

        Without a job it is the first one that was named in this process; what was counted before
        any was named belongs to it too. A thread that gets the number of one that ended goes on
        in its lane.
        """
        key = (get_ident(), job, rank)
        lane = self._by_thread.get(key)
        if lane is None and not identity.is_loader_worker():
            lane = self._by_thread[key] = self._known(job, rank) or self._new(job, rank)
        return lane

    def _known(self, job: str | None, rank: int | None) -> Lane | None:
        """Return the lane of this thread that is known by another key."""
        name = None if job is None else names.job_name(job)
        if name is not None and self._job is None:
            self._job = name
            for lane in self.lanes:
                if lane.due_ns == NEVER:
                    lane.job = name
        for lane in self.lanes:
            is_same = rank in (None, lane.rank) and name in (None, lane.job)
            if is_same and lane.thread == get_ident():
                return lane
        return None

    def _new(self, job: str | None, rank: int | None) -> Lane:
        name = (self._job or names.job_name(None)) if job is None else names.job_name(job)
        lane = Lane(name, rank, "auto" if self.automatic else "client")
        if self.automatic:
            lane.trains = get_ident() == threading.main_thread().ident
        self.lanes.append(lane)
        self._flush_at_exit()
        return lane

    def lane_of_step(self) -> Lane | None:
        """Return the lane to which an optimizer's step in this thread belongs: it trains.

        It is that of the loop in this thread, else that of the loop which last got a batch in
        another one, for autograd's threads step too. Except where a thread of the job itself trains
        on what a helper thread reads: that loop does not train, and its waits are not this one's.
        """
        lane, latest = self.here(), self.latest
        if latest is not None and latest is not lane and not (lane is not None and lane.open):
            if latest.trains or not _is_of_python():
                lane = latest
            else:
                lane = self.lane()
                if lane is not None:
                    lane.count_by_steps()
                    note("helper_thread", f"{threading.current_thread().name} trains")
        lane = lane or self.lane()
        if lane is not None:
            lane.trains = True
            if self.automatic and not LOADERS.on:
                lane.count_by_steps()
        return lane

    def flush(self) -> None:
        """Send what is left: the process ends."""
        for lane in self.lanes:
            lane.report(NEVER, ending=True)
        if summary.is_wanted():
            self._summarise()

    def _summarise(self) -> None:
        lanes = [lane for lane in self.lanes if lane.due_ns != NEVER]
        try:
            if lanes:
                rank = lanes[0].rank
                rank = identity.rank() if rank is None else rank
                summary.say(lanes, rank, identity.world_size() or 1)
        except Exception:  # as where the job has taken its framework apart by now
            return

    def _flush_at_exit(self) -> None:
        """Have `flush` called when this process ends, also where it is one of multiprocessing's.

        Those leave by ``os._exit`` after their own finalizers, which a child must register itself.
        """
        if self._flushing:
            return
        self._flushing = True
        atexit.register(self.flush)
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.flush, exitpriority=0)
        if summary.is_wanted() and identity.rank() == 0:
            before_termination(self.flush)


def _is_of_python() -> bool:
    """Return whether this thread was started by Python code, and not by a library in C++.

    ``current_thread`` would answer for those too, with an object that it makes up.
    """
    here = get_ident()
    threads = [thread for thread in threading.enumerate() if thread.ident == here]
    return any(type(thread).__name__ != "_DummyThread" for thread in threads)


PROCESS = Process()
os.register_at_fork(after_in_child=PROCESS.forget)
