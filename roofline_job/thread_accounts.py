# SPDX-License-Identifier: Apache-2.0
"""Accounts for the time of one thread: wall time of its loops, and exclusive phases.

Wall time is the union of the times in which a loop is open or a phase is under way. It advances
only when a batch is asked for or comes, a phase begins or ends, or `step` is called.

Phases exclude each other by what they claim. A span that began when the account's phases
together had claimed c0, and that took e, owns what no span inside it claimed since,

    own = e - (c1 - c0),    c := c1 + own,

so c, the sum over all phases, is never more than the wall time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from . import switches
from .account import Account, OpenLoop
from .batch_flops import BatchFlops
from .cuda_idle import MEASURED_PHASES, IdleMeter, IdlePair
from .degraded import REPORTS, Part, log_found
from .reporter import RETRY_SECONDS, SECOND, Report

NEVER = 1 << 63
"""A due time that no clock reaches."""
PHASES = (
    "data",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "checkpoint",
    "eval",
    "logging",
    "other",
)
_KNOWN = {phase: phase for phase in PHASES}
_MEASURED = frozenset(MEASURED_PHASES)
LONG_NS = SECOND
"""A phase that lasted so long is announced at its next start, however recent the last report is."""
SHORT_REST_NS = SECOND // 10
"""What begins so soon after an event at which no report was due is not announced: one will do."""


@dataclass(slots=True)
class Span:
    """A phase under way."""

    phase: str
    begin_ns: int
    claimed_ns: int
    """By all phases, as it began."""
    pair: IdlePair | None
    outer: str | None
    """The phase around it."""
    is_inside: bool
    """Whether it began inside a wait for data."""


class ThreadAccount(Account):
    """The account of one thread, and its reports; other threads add only steps of optimizers."""

    def __init__(
        self,
        job: str,
        rank: int | None,
        instrumentation: str,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        super().__init__(job, rank, instrumentation, clock)
        self.trains = True
        """False while it is not known whether a helper thread trains: then nothing is reported."""
        self.by_steps = False
        """Whether steps count without a loop, because the loop's loader cannot be seen."""
        self.due_ns = NEVER
        """When the next report is due."""
        self.quiet_until_ns = NEVER
        """The same, or 0 where more than the time decides at which waits and phases to report."""
        self.flops = BatchFlops(self) if switches.COUNT_FLOPS else None
        """None where the FLOPs of batches are not to be counted."""
        self.seen_ns = 0
        """Until when `wall_ns` is counted."""
        self.claimed_ns = 0
        """The sum over all phases."""
        self.depth = 0
        """Number of spans under way."""
        self.phase: str | None = None
        """The innermost phase outside waits for data."""
        self.phase_in_wait: str | None = None
        """The innermost phase inside a wait for data."""
        self.reported_phase: str | None = None
        """The phase under way in the last report that was delivered."""
        self.long_phases: set[str] = set()
        """Phases that lasted long the last time."""
        self.stepping = False
        """Whether calls of `step`, outside any loop, keep it running."""
        self.asking: OpenLoop | None = None
        """The outermost loop whose next() is under way."""
        self.in_body: OpenLoop | None = None
        """The loop whose body runs."""
        self.inner_data = False
        """Whether another data phase ended since the outermost next() began."""
        self.eval_phases = 0
        """Phases eval under way: loops that begin there train nothing."""
        self._closed = (0, 0)
        """When the last open loop was closed, and how much wall time there was then."""
        self._report = Report(self)
        self._reporting = False
        self._reported = False
        self._delivered = True
        """Whether the last report was delivered."""

    def count_by_steps(self) -> None:
        """Count steps without a loop, whose loader cannot be seen; its waits are unknown."""
        self.by_steps = True
        if self.due_ns == NEVER:
            self.phase_ns.pop("data", None)

    def detach(self) -> None:
        """Detach from the thread: in a forked child, this is its parent's account."""
        self.thread = 0  # no thread has this number
        self.due_ns = self.quiet_until_ns = NEVER
        self.meter = IdleMeter()  # without CUDA: the parent's events are of no use here
        if self.flops is not None:
            self.flops.disable()

    def advance(self, now_ns: int) -> None:
        """Count the wall time up to now, if it runs."""
        if self.depth or self.open or self.stepping:
            self.wall_ns += now_ns - self.seen_ns
        self.seen_ns = now_ns

    def claim(self, phase: str, own_ns: int) -> None:
        """Add time to a phase; no other phase may claim the same time."""
        if own_ns > 0:
            self.claimed_ns += own_ns
            self.phase_ns[phase] = self.phase_ns.get(phase, 0) + own_ns

    def measures(self, phase: str) -> None:
        """Report a phase from now on, even with 0 s."""
        self.phase_ns.setdefault(phase, 0)

    def begin(self, phase: str) -> Span:
        """Begin a phase; `end` takes what this returns. Unknown names count as other."""
        phase = _KNOWN.get(phase, "other")
        self.sweep()
        meter = self.meter
        pair = meter.start(measured=phase in _MEASURED) if meter.ready else None
        now_ns = self.clock()
        rested_ns = now_ns - self.seen_ns
        self.advance(now_ns)
        if now_ns >= self.quiet_until_ns:
            self.announce(phase, now_ns, rested_ns)
        if phase == "eval":
            self.eval_phases += 1
        self.depth += 1
        is_inside = self.asking is not None
        if is_inside:
            outer, self.phase_in_wait = self.phase_in_wait, phase
        else:
            outer, self.phase = self.phase, phase
        return Span(phase, now_ns, self.claimed_ns, pair, outer, is_inside)

    def end(self, span: Span) -> None:
        """End a phase."""
        self.depth -= 1
        if span.phase == "eval":
            self.eval_phases -= 1
        elif span.phase == "checkpoint":
            self.saved()
        now_ns = self.clock()
        self.wall_ns += now_ns - self.seen_ns
        self.seen_ns = now_ns
        own_ns = now_ns - span.begin_ns - self.claimed_ns + span.claimed_ns
        self.claim(span.phase, own_ns)
        if span.pair is not None:
            self.meter.stop(span.pair, span.phase, max(0, own_ns))
        if span.is_inside:
            self.phase_in_wait = span.outer
        else:
            self.phase = span.outer
        if now_ns >= self.quiet_until_ns or now_ns - span.begin_ns >= LONG_NS:
            self.leave_phase(span.phase, now_ns, now_ns - span.begin_ns)

    def current_phase(self) -> str | None:
        """Return the innermost phase."""
        if self.asking is not None:
            return self.phase_in_wait or "data"
        return self.phase if self.depth else None

    def announce(self, phase: str, now_ns: int, rested_ns: int) -> None:
        """Report that a phase begins, if it may be long.

        ``rested_ns`` is the time since the last event of this account. The report's own time counts
        for the phase.
        """
        if phase in self.long_phases and self._delivered:
            is_wanted = self.due_ns != NEVER
        else:
            is_short = rested_ns <= SHORT_REST_NS and self._reported
            is_wanted = now_ns >= self.due_ns and not is_short
        if is_wanted:
            self.report(now_ns, phase)

    def leave_phase(self, phase: str, now_ns: int, lasted_ns: int) -> None:
        """Note how long a phase lasted; report if due, or if the last report names an ended phase.

        The time of the report counts for the phase.
        """
        if lasted_ns >= LONG_NS:
            self.long_phases.add(phase)
        elif self.long_phases:
            self.long_phases.discard(phase)
        self._set_quiet()
        reported = self.reported_phase
        if now_ns >= self.due_ns or (reported is not None and reported is not self.current_phase()):
            self.report(now_ns)
            then_ns = self.clock()
            if self.depth or self.open or self.stepping:
                self.claim(phase, then_ns - now_ns)
            self.advance(then_ns)

    def _set_quiet(self) -> None:
        is_quiet = self.reported_phase is None and not self.long_phases
        self.quiet_until_ns = self.due_ns if is_quiet else 0

    def sweep(self) -> None:
        """Close loops that were left, as of the last event."""
        for loop in tuple(self.open.values()):
            if loop.is_over():
                loop.end()

    def close_stale(self, loop: OpenLoop) -> None:
        """Close a loop of `step` calls and, if the new one trains, evaluations that are kept."""
        self.stepping = False
        for other in tuple(self.open.values()):
            if other.evaluates and not loop.evaluates:
                other.end()

    def open_loop(self, loop: OpenLoop) -> None:
        """Let wall time run until this loop is closed."""
        self.stepping = False
        if not self.open:
            self.counts.end_episode()
        self.open[id(loop)] = loop
        if self.flops is not None:
            self.flops.loop_opened(loop)

    def close_loop(self, loop: OpenLoop) -> None:
        """Stop the wall time of this loop, which is counted up to now."""
        if self.flops is not None:
            self.flops.loop_closed(loop)
        if self.open.pop(id(loop), None) is not None and not self.open:
            self._closed = (self.seen_ns, self.wall_ns)

    def optimizer_step(self, optimizer: Any) -> None:
        """Count a step of this optimizer if it belongs to a loop.

        After the last loop was closed it does while a batch of it waits for a step. The time up to
        that step is the loop's.
        """
        self.meter.remember_stream()
        if self.flops is not None:
            self.flops.optimizer_stepped()
        self._train_left_batch()
        self.sweep()
        if self.open:
            # A kept evaluation trains only if nothing else does.
            may_train = [loop for loop in tuple(self.open.values()) if not loop.evaluates]
            for loop in may_train or tuple(self.open.values()):
                loop.stepped()
            self.counts.optimizer_step(optimizer)
            self.start(self.seen_ns)
        elif self.counts.late_step(optimizer):
            if get_ident() == self.thread:
                closed_ns, wall_ns = self._closed
                self.seen_ns = self.clock()
                self.wall_ns = wall_ns + self.seen_ns - closed_ns
        elif self.by_steps:
            self.step(1, None, None)

    def _train_left_batch(self) -> None:
        """Let a loop train whose body is under way although it was left with its only batch, as
        ``next(iter(loader))`` leaves it."""
        loop = self.in_body
        if loop is None or loop.evaluates or len(self.open) != 1:
            return
        if loop.has_one_batch and loop.is_over():
            loop.stepped()

    def step(self, steps: int, samples: float | None, flops: float | None) -> None:
        """Count steps that the job states.

        Outside any loop the first of them opens one, which stays open until another loop begins.
        """
        now_ns = self.clock()
        self.sweep()
        self.advance(now_ns)
        if not self.open and not self.stepping:
            self.counts.end_episode()
            self.stepping = True
        self.counts.explicit(steps, samples, flops)
        if self.flops is not None:
            self.flops.optimizer_stepped()
            if flops is not None:
                self.flops.disable()
        self.start(now_ns)
        if now_ns >= self.due_ns:
            self.report(now_ns)

    def start(self, now_ns: int) -> None:
        """Schedule the first report: the job has begun to train."""
        if self.due_ns == NEVER and self.trains:
            self.due_ns = now_ns
            self._set_quiet()
            log_found()

    def report(self, now_ns: int, phase: str | None = None, *, ending: bool = False) -> None:
        """Send a report, unless one is under way; the next is due in a second.

        ``phase`` begins now; without it the innermost one under way is named. A signal handler of
        the job may run in between, so nothing here waits for a lock.
        """
        if self._reporting or self.due_ns == NEVER or not REPORTS.on:
            return
        self._reporting = True
        try:
            if phase is None and not ending:
                phase = self.current_phase()
            delivered = self._delivered = self._report.send(now_ns, phase, ending=ending)
            self._reported = True
            self.reported_phase = phase if delivered else None
            self.due_ns = now_ns + (SECOND if delivered else RETRY_SECONDS * SECOND)
            self._set_quiet()
        except Exception as error:
            REPORTS.fail(error)
        finally:
            self._reporting = False


Begun = tuple[ThreadAccount, Span] | None
"""A span under way and its account; None where none is measured."""


def begin_span(find: Callable[[], ThreadAccount | None], phase: str, part: Part) -> Begun:
    """Begin a phase in the account that is found; a failure switches that part off."""
    try:
        account = find()
        return None if account is None else (account, account.begin(phase))
    except Exception as error:
        part.fail(error)
        return None


def end_span(begun: Begun, part: Part) -> None:
    """End a span, if one was begun; a failure switches that part of the client off."""
    try:
        if begun is not None:
            account, span = begun
            account.end(span)
    except Exception as error:
        part.fail(error)
