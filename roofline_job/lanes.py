# SPDX-License-Identifier: Apache-2.0
"""Where the time of one thread goes: wall time of its loops, and phases that exclude each other.

Wall time is the union of the times in which a loop is open or a phase is under way. It advances
only when something happens: a batch came, a phase began or ended, `step` was called.

Phases exclude each other by what they claim. A span that began when the lane's phases together had
claimed c0, and that took e, owns what no span inside it claimed since,

    own = e - (c1 - c0),    c := c1 + own,

so c, the sum over all phases, is never more than the wall time.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns

from . import identity
from .counts import Counts
from .dynamo import leave_alone
from .failures import failed
from .runs import NEVER, PROCESS, Run
from .spans import KNOWN, Body
from .spans import PHASES as PHASES
from .spans import Span as Span
from .streams import MEASURED_PHASES, IdleMeter, IdlePair

_MEASURED = frozenset(MEASURED_PHASES)
_STEPPING = 0
"""The key of the loop that calls of `step` make; no object has this id."""


def _always() -> bool:
    return True


class Lane:
    """The accounting of one thread for one run. Only that thread writes."""

    __slots__ = (
        "__weakref__",
        "_alive",
        "_closed",
        "_loops",
        "_since",
        "asking",
        "bodies",
        "claimed_ns",
        "clock",
        "counts",
        "data_ns",
        "depth",
        "evaluating",
        "evaluating_loops",
        "inner_data",
        "meter",
        "phase_ns",
        "run",
        "seen_ns",
        "start_pair",
        "thread",
    )

    def __init__(
        self,
        run: Run,
        clock: Callable[[], int] = perf_counter_ns,
        alive: Callable[[], object] = _always,
    ) -> None:
        self.run = run
        self.clock = clock
        self.thread = get_ident()
        self.meter = IdleMeter(failed)
        self.start_pair: Callable[[], IdlePair | None] | None = None
        """None while no loop began after torch was imported."""
        self.counts = Counts(run)
        self.seen_ns = 0
        """The end of the time that is accounted."""
        self._since = (0, 0)
        """When wall time last began to run, and how much there was before."""
        self._closed = (0, 0)
        """When the last open loop was closed, and how much wall time there was then."""
        self.claimed_ns = 0
        """The sum over all phases."""
        self.data_ns = 0
        """Phase data, as far as watched loops account it."""
        self.phase_ns: dict[str, int] = {}
        """All the rest."""
        self.depth = 0
        """Spans under way."""
        self.inner_data = False
        """Whether a data phase ended since a watched next() began."""
        self.evaluating = 0
        """Phases eval and evaluating loops under way: while there are any, nothing is trained."""
        self.asking: object | None = None
        """The iterator whose next() a watched loop waits for; the outermost one."""
        self._alive = alive
        self._loops: dict[int, Callable[[], object]] = {}
        self.evaluating_loops: set[int] = set()
        """Those that are open, by the ids of their tokens."""
        self.bodies: list[Body] = []
        """Of the evaluating loops that go on now, the innermost last."""

    def begin(self, phase: str) -> Span:
        """Begin a phase; `end` takes what this returns. Unknown names count as other."""
        span = Span(KNOWN.get(phase, "other"))
        span.pair = self.meter.start(measured=phase in _MEASURED)
        now_ns = self.clock()
        if not self.depth and not self._loops:
            self._resume(now_ns)
        elif self.evaluating_loops:
            self.settle(now_ns)
            if phase == "data":
                self.turn_to(self.asking, now_ns)
        if phase == "eval":
            self.evaluating += 1
        self.depth += 1
        span.begin_ns = now_ns
        span.claimed_ns = self.claimed_ns
        return span

    def end(self, span: Span, phase: str | None = None) -> None:
        """End a phase, as another one if it turned out to be that."""
        # First, for a signal handler of the job may raise at a call.
        if span.phase == "eval":
            self.evaluating -= 1
        self.depth -= 1
        now_ns = self.clock()
        if phase is None:
            phase = span.phase
        if phase == "data":
            self.inner_data = True
        self.seen_ns = now_ns
        own_ns = now_ns - span.begin_ns - self.claimed_ns + span.claimed_ns
        if own_ns > 0:
            self.claimed_ns += own_ns
            self.phase_ns[phase] = self.phase_ns.get(phase, 0) + own_ns
        if self.bodies:
            self.settle(now_ns)
        if span.pair is not None:
            self.meter.stop(span.pair, phase, max(0, own_ns))
        if now_ns >= self.run.due_ns:
            self.tell(now_ns)

    def open_loop(self, token: object, *, evaluating: bool) -> None:
        """Let wall time run until this loop is closed or its token is gone.

        In phase eval every loop evaluates.
        """
        key = id(token)
        if key in self._loops:
            return
        now_ns = self.clock()
        self._loops.pop(_STEPPING, None)
        self._advance(now_ns)
        if "torch" in sys.modules:
            self.start_pair = self.meter.start
        self._loops[key] = weakref.ref(token, lambda _: self._lose(key))
        if evaluating or self.evaluating > len(self.bodies):
            self.evaluating_loops.add(key)
        self.turn_to(token, now_ns)

    def close_loop(self, token: object) -> None:
        """Stop the wall time of this loop; one that is not open does not matter."""
        key = id(token)
        if key in self._loops:
            if get_ident() == self.thread:
                self.settle(self.clock())
            self._lose(key)

    def turn_to(self, token: object, now_ns: int) -> None:
        """Go on in this loop, if it is one: its next() is called.

        A loop that evaluates and is still open when one that trains is asked for a batch is only
        held, not gone on in; it does when it is asked itself.
        """
        key = id(token)
        if key not in self._loops:
            return
        if key not in self.evaluating_loops:
            self.evaluating -= len(self.bodies)
            self.bodies.clear()
        elif all(body.key != key for body in self.bodies):
            self.evaluating += 1
            self.bodies.append(Body(key, self.depth, now_ns, self.claimed_ns))

    def waits(self) -> dict[str, int]:
        """Return the host time by phase, in nanoseconds."""
        waits = self.phase_ns.copy()
        if self.data_ns:
            waits["data"] = waits.get("data", 0) + self.data_ns
        return waits

    @property
    def wall_ns(self) -> int:
        """Time in which a loop was open or a phase under way, up to the last thing that happened.

        Another thread may ask while it is made to run again: it sees the time from before.
        """
        seen_ns = self.seen_ns
        start_ns, before_ns = self._since
        return before_ns + max(0, seen_ns - start_ns)

    def is_open(self, token: object) -> bool:
        """Return whether this loop is open here."""
        return id(token) in self._loops

    def batch(self, samples: float | None = None) -> None:
        """Count a batch that came back, unless it is evaluated on."""
        if not self.evaluating:
            self.counts.tally(0).batches += 1
            if samples is not None:
                self.counts.add_samples(samples)
            if self.run.due_ns == NEVER:
                self.run.start(self.seen_ns)

    def optimizer_step(self, optimizer: object) -> None:
        """Count a step of this optimizer if it belongs to a loop.

        After the last loop was closed it does while a batch of it waits for a step. The time up to
        that step is the loop's.
        """
        self.meter.stream_seen()
        if self._loops:
            self.counts.optimizer_step(optimizer)
        elif self.counts.late_step(optimizer):
            self._since, self.seen_ns = self._closed, self.clock()

    def step(self, steps: int, samples: float | None, flops: float | None) -> None:
        """Count steps that the job itself tells of.

        Outside any loop the first of them opens one, which stays open until another loop begins.
        """
        now_ns = self.clock()
        self._advance(now_ns)
        if not self._loops:
            self._loops[_STEPPING] = _always
        self.counts.explicit(steps, samples, flops)
        self.run.start(now_ns)
        if now_ns >= self.run.due_ns:
            self.tell(now_ns)

    def _advance(self, now_ns: int) -> None:
        """Account the time up to now; where no loop is open, the one to come begins an episode."""
        if self._loops or self.depth:
            self.settle(now_ns)
        else:
            self._resume(now_ns)
        if not self._loops:
            self.counts.end_episode()

    def tell(self, now_ns: int) -> None:
        """Send a report of the run."""
        self.run.tell(now_ns)

    def ended(self) -> bool:
        """Return whether the thread is gone."""
        return self._alive() is None

    def _resume(self, now_ns: int) -> None:
        """Let wall time run again: what passed since it last ran does not count."""
        self._since = (now_ns, self.wall_ns)
        self.seen_ns = now_ns

    def settle(self, now_ns: int) -> None:
        """Account the wall time up to now, and the body of the innermost loop if it evaluates."""
        self.seen_ns = now_ns
        if not self.bodies:
            return
        body = self.bodies[-1]
        if body.depth == self.depth:
            own_ns = now_ns - body.begin_ns - self.claimed_ns + body.claimed_ns
            if own_ns > 0:
                self.claimed_ns += own_ns
                self.phase_ns["eval"] = self.phase_ns.get("eval", 0) + own_ns
            body.begin_ns = now_ns
            body.claimed_ns = self.claimed_ns

    def _lose(self, key: int) -> None:
        """Forget a loop, with its body if it evaluated."""
        is_last = self._loops.pop(key, None) is not None and not self._loops
        # Gave it no batch, the time up to a step to come is still that of the loop before.
        if is_last and (key in self.evaluating_loops or not self.counts.go_on()):
            self._closed = (self.seen_ns, self.wall_ns)
        self.evaluating_loops.discard(key)
        going = [body for body in self.bodies if body.key != key]
        self.evaluating -= len(self.bodies) - len(going)
        self.bodies = going


class _Thread:
    """The lanes of one thread; it lives as long as that."""

    __slots__ = ("__weakref__", "generation", "lanes", "of_run")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.lanes: dict[tuple[str | None, int | None], Lane] = {}
        self.of_run: dict[Run, Lane] = {}


_local = threading.local()


def current(job: str | None = None, rank: int | None = None) -> Lane | None:
    """Return this thread's lane of a run; None where this process must not report.

    Without a job it is the first one named in this process; without a rank the process's own.
    """
    thread: _Thread | None = getattr(_local, "thread", None)
    if thread is None or thread.generation != PROCESS.generation:
        thread = _local.thread = _Thread(PROCESS.generation)
    lane = thread.lanes.get((job, rank))
    if lane is None and not identity.is_loader_worker():
        run = PROCESS.run(job, rank)
        lane = thread.of_run.get(run)
        if lane is None:
            lane = Lane(run, alive=weakref.ref(thread))
            run.join(lane)
            thread.of_run[run] = lane
            leave_alone()
        thread.lanes[job, rank] = lane
    return lane


def detached() -> Lane:
    """Return a lane whose time nobody hears of, for a process that must not report."""
    run = Run(None, None, "client")
    run.over = True
    return Lane(run)
