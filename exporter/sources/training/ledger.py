# SPDX-License-Identifier: Apache-2.0
"""What each training process said last: who may say it, how many there may be, when it is old."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.clock import Clock
from exporter.reading import TrainingReport, TrainingTotals
from exporter.sources.training.credentials import Peer, Processes
from exporter.sources.training.decode import Claim
from exporter.sources.training.inbox import Arrival
from exporter.sources.training.refusals import Refused

KEPT_SECONDS = 300.0
"""After a process's last report, which is also the one in which it says that it ends. One that
lives on counts as silent then: its totals are kept, for it may speak again."""
SILENT_SECONDS = 60.0
"""A process that cannot be seen counts as ended after so long without a report."""
MAKES_ROOM_SECONDS = 10.0
LOOK_SECONDS = 1.0
"""Between two looks at the processes that have not reported for a while."""
QUIET_SECONDS = 2.0
"""A process that reported within this time need not be looked at."""


@dataclass(slots=True)
class _Entry:
    peer: Peer
    started: int | None
    """When the process started; None if that cannot be seen."""
    claim: Claim
    device: str | None
    received_monotonic_seconds: float
    received_timestamp_seconds: float
    is_gone: bool = False
    is_silent: bool = False
    report: TrainingReport | None = None
    """What is handed on of all this, once it was asked for."""


@dataclass(slots=True)
class _Job:
    received_monotonic_seconds: float
    ids: set[str] = field(default_factory=set)


class Ledger:
    """The last claim of each report id; any thread may take and read.

    Entries and jobs are ordered by their last report, so that the one that was silent longest is
    found without a search.
    """

    def __init__(self, clock: Clock, processes: Processes, max_jobs: int, max_ranks: int) -> None:
        self._clock = clock
        self._processes = processes
        self._max_jobs = max_jobs
        self._max_ranks = max_ranks
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._taken = 0
        self._looked_at = float("-inf")

    @property
    def taken_total(self) -> int:
        """How many claims were taken."""
        return self._taken

    def take(self, claim: Claim, arrival: Arrival) -> None:
        """Keep what the sender of `arrival` claims.

        Raises:
            Refused: it is another's, is not newer, contradicts what was said before, or there is
                no room for it.
        """
        with self._lock:
            entry = self._entries.get(claim.report_id)
            if entry is None:
                entry = self._admit(claim, arrival)
            else:
                _check_next(entry, claim, arrival.peer)
                entry.claim = claim
                entry.device = claim.device if entry.device is None else entry.device
                entry.is_gone = entry.is_silent = False
                entry.report = None
            entry.received_monotonic_seconds = arrival.monotonic_seconds
            entry.received_timestamp_seconds = arrival.timestamp_seconds
            self._entries.move_to_end(claim.report_id)
            job = self._jobs[claim.job]
            job.received_monotonic_seconds = arrival.monotonic_seconds
            self._jobs.move_to_end(claim.job)
            self._taken += 1

    def reports(self) -> tuple[TrainingReport, ...]:
        """Return what each process said last.

        Those silent for five minutes are forgotten, unless they can be seen to live.
        """
        with self._lock:
            now = self._clock.monotonic()
            if now - self._looked_at >= LOOK_SECONDS:
                self._looked_at = now
                self._look(now)
            return tuple(
                entry.report or _report(report_id, entry)
                for report_id, entry in self._entries.items()
            )

    def _admit(self, claim: Claim, arrival: Arrival) -> _Entry:
        peer = arrival.peer
        leaving = self._make_room(claim.job, arrival.monotonic_seconds)
        if not self._processes.may_claim(peer.pid, claim.pid):
            raise Refused("credentials", f"pid: {claim.pid} is not the sender's")
        for report_id in leaving:
            self._drop(report_id)
        entry = self._entries[claim.report_id] = _Entry(
            peer=peer,
            started=self._processes.started(peer.pid),
            claim=claim,
            device=claim.device,
            received_monotonic_seconds=arrival.monotonic_seconds,
            received_timestamp_seconds=arrival.timestamp_seconds,
        )
        job = self._jobs.get(claim.job)
        if job is None:
            job = self._jobs[claim.job] = _Job(arrival.monotonic_seconds)
        job.ids.add(claim.report_id)
        return entry

    def _make_room(self, job: str, now: float) -> tuple[str, ...]:
        """Return the ids that have to leave before one of this job can come."""
        if job not in self._jobs and len(self._jobs) >= self._max_jobs:
            oldest = next(iter(self._jobs.values()))
            if now - oldest.received_monotonic_seconds <= MAKES_ROOM_SECONDS:
                raise Refused("jobs", f"job: {job} is one more than {self._max_jobs}")
            return tuple(oldest.ids)
        if len(self._entries) >= self._max_ranks:
            report_id, entry = next(iter(self._entries.items()))
            if now - entry.received_monotonic_seconds <= MAKES_ROOM_SECONDS:
                raise Refused("ranks", f"a process of {job} is one more than {self._max_ranks}")
            return (report_id,)
        return ()

    def _drop(self, report_id: str) -> None:
        job = self._entries.pop(report_id).claim.job
        ids = self._jobs[job].ids
        ids.remove(report_id)
        if not ids:
            del self._jobs[job]

    def _look(self, now: float) -> None:
        """Forget what is old and find out which of the quiet processes are gone."""
        for report_id, entry in list(self._entries.items()):
            silent = now - entry.received_monotonic_seconds
            if silent <= QUIET_SECONDS:
                return
            ended = entry.claim.exited or entry.is_gone
            if not ended and self._is_gone(entry, silent):
                ended = entry.is_gone = True
                entry.report = None
            if silent > KEPT_SECONDS:
                if ended:
                    self._drop(report_id)
                elif not entry.is_silent:
                    entry.is_silent = True
                    entry.report = None

    def _is_gone(self, entry: _Entry, silent_seconds: float) -> bool:
        if entry.started is None:
            return silent_seconds > SILENT_SECONDS
        return self._processes.started(entry.peer.pid) != entry.started


def _check_next(entry: _Entry, claim: Claim, peer: Peer) -> None:
    """Raise Refused unless `claim` can follow what is known of its id."""
    known = entry.claim
    if peer != entry.peer or claim.pid != known.pid:
        raise Refused("credentials", f"id: belongs to {entry.peer}")
    if claim.sequence <= known.sequence:
        raise Refused("old", f"sequence: {claim.sequence} after {known.sequence}")
    if (claim.job, claim.rank) != (known.job, known.rank):
        raise Refused("schema", "id: belongs to another job or rank")
    key = _falling(known.totals, claim.totals)
    if key is not None:
        raise Refused("schema", f"{key}: fell")


def _falling(before: TrainingTotals, now: TrainingTotals) -> str | None:
    """Return the total that fell or that is no longer told, or None."""
    if now.steps < before.steps:
        return "steps"
    if now.batches < before.batches:
        return "batches"
    if now.step_seconds < before.step_seconds:
        return "step_seconds"
    if _is_less(now.samples, before.samples):
        return "samples"
    if _is_less(now.model_flops, before.model_flops):
        return "model_flops"
    if _fallen(now.phase_seconds, before.phase_seconds):
        return "phase_seconds"
    if _fallen(now.phase_gpu_idle_seconds, before.phase_gpu_idle_seconds):
        return "phase_gpu_idle_seconds"
    return None


def _is_less(now: float | None, before: float | None) -> bool:
    return before is not None and (now is None or now < before)


def _fallen(now: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    return [
        phase for phase, seconds in before.items() if seconds and now.get(phase, -1.0) < seconds
    ]


def _report(report_id: str, entry: _Entry) -> TrainingReport:
    claim = entry.claim
    entry.report = TrainingReport(
        report_id=report_id,
        job=claim.job,
        rank=claim.rank,
        received_monotonic_seconds=entry.received_monotonic_seconds,
        received_timestamp_seconds=entry.received_timestamp_seconds,
        totals=claim.totals,
        device=entry.device,
        host_pid=entry.peer.pid or None,
        world_size=claim.world_size,
        framework=claim.framework,
        precision=claim.precision,
        instrumentation=claim.instrumentation,
        loader=claim.loader,
        memory_bytes=claim.memory_bytes,
        errors=claim.errors,
        alive=not (claim.exited or entry.is_gone),
        silent=entry.is_silent,
    )
    return entry.report
