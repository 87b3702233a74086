# SPDX-License-Identifier: Apache-2.0
"""Keeps the last report of each training process, up to a number of each user, for five minutes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Generic, TypeVar

from exporter.clock import Clock
from exporter.model.training import TrainingReport, TrainingTotals
from exporter.sources.proc.procfs import user_name
from exporter.sources.training.credentials import Peer, Processes
from exporter.sources.training.decode import Claim
from exporter.sources.training.receiver import Arrival
from exporter.sources.training.refusals import Rejected

KEPT_SECONDS = 300.0
"""How long a process is kept after its last report, also if it has reported that it ends. One that
is still alive then counts as silent, unless its last word was that a phase begins: its totals are
kept, for it may report again."""
SILENT_SECONDS = 60.0
"""A process that cannot be seen counts as ended after this long without a report."""
CHECK_SECONDS = 1.0
"""Between two checks whether processes without recent reports are alive."""
QUIET_SECONDS = 2.0
"""A process that reported within this time is not checked."""
FASTER_RATIO = 1.05
"""How much faster than this process's clock a job's may run."""
AGE_SLACK_SECONDS = 5.0
"""Allowed beyond the age of the process: its start is known in ticks, and clocks are read one after
the other."""
GROWTH_SLACK_SECONDS = 60.0
"""Allowed beyond the time since the first report of an id, which may have waited this long in the
kernel's queue while the exporter was stopped."""
MOST_PER_SECOND: Mapping[str, float] = {
    # An empty loop in Python runs some ten million times a second.
    "steps": 1e6,
    "batches": 1e6,
    # That many samples of a hundred bytes are 1 TB/s of memory traffic.
    "samples": 1e10,
    # A hundred times a GPU's dense FP8 peak: one process may drive all GPUs of a node.
    "model_flops": 1e18,
}
"""Rates that no process reaches on average over its life."""
IDLE_SECONDS = 10.0
"""An entry that was silent for longer makes room for a new one of the same user."""
_MOST_USERS = 256
_TOTALS = tuple(field.name for field in fields(TrainingTotals))
_CLAIMED = {field.name for field in fields(TrainingReport)} & set(Claim._fields) - {
    "device",
    "phase",
}
"""What a report has as it was claimed."""

Key = TypeVar("Key", bound=Hashable)
_Job = tuple[int, str]
"""The uid, and the name that the user gave the job."""


@dataclass(slots=True)
class _Entry:
    peer: Peer
    owner: str | None
    host_pids: tuple[int, ...]
    started: int | None
    """When the process started; None if that cannot be seen."""
    born_monotonic_seconds: float
    """When it started at the earliest."""
    born_timestamp_seconds: float | None
    """Unix time of `started`."""
    first_monotonic_seconds: float
    first_step_seconds: float
    claim: Claim
    device: str | None
    received_monotonic_seconds: float
    received_timestamp_seconds: float
    announces: bool = False
    announced_wait_seconds: float = 0.0
    """Sum of the announced waits for data that have ended."""
    is_gone: bool = False
    is_silent: bool = False
    report: TrainingReport | None = None
    """Cache of what `reports` returns for it."""

    @property
    def job(self) -> _Job:
        return self.peer.uid, self.claim.job


class Quota(Generic[Key]):
    """The entries of each user in a table, the one that was silent for longest first.

    A user with no more entries than the size of the table over the number of users loses none.
    """

    def __init__(self, size: int, reason: str) -> None:
        """Refuse entries without room for this reason, one of ``TRAINING_QUOTAS``."""
        self._size = size
        self._reason = reason
        self._entries: dict[int, OrderedDict[Key, float]] = {}
        """By uid: when each entry was last used."""

    def use(self, uid: int, key: Key, now: float) -> None:
        """Note that an entry was used at monotonic time `now`; a new one is added."""
        entries = self._entries.setdefault(uid, OrderedDict())
        entries[key] = now
        entries.move_to_end(key)

    def remove(self, uid: int, key: Key) -> None:
        """Take an entry out."""
        del self._entries[uid][key]
        if not self._entries[uid]:
            del self._entries[uid]

    def makes_room(self, uid: int, what: str, now: float) -> Key | None:
        """Return the entry to drop for a new one of this user; None while the table is not full.

        It is one of the user with the most, if that one keeps at least as many as this user then
        has; else an own one that is idle.

        Raises:
            Rejected: there is neither; the message begins with `what`.
        """
        if sum(map(len, self._entries.values())) < self._size:
            return None
        own = self._entries.get(uid, OrderedDict[Key, float]())
        largest = max(self._entries.values(), key=len)
        if len(own) + 1 < len(largest):
            return next(iter(largest))
        oldest = next(iter(own), None)
        if oldest is None or now - own[oldest] <= IDLE_SECONDS:
            raise Rejected(self._reason, f"{what} is one more than {self._size}")
        return oldest


class Ledger:
    """The last claim of each report id; thread-safe."""

    def __init__(
        self,
        clock: Clock,
        processes: Processes,
        max_jobs: int,
        max_ranks: int,
        *,
        owners: bool = True,
    ) -> None:
        self._clock = clock
        self._processes = processes
        self._owner = lru_cache(_MOST_USERS)(user_name if owners else lambda _: None)
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        """By report id, in the order in which the processes appeared."""
        self._ids: dict[_Job, set[str]] = {}
        self._job_quota: Quota[_Job] = Quota(max_jobs, "jobs")
        self._rank_quota: Quota[str] = Quota(max_ranks, "ranks")
        self.taken_total = 0
        """How many claims were accepted."""
        self._checked_at = float("-inf")

    def take(self, claim: Claim, arrival: Arrival) -> None:
        """Accept a claim.

        Raises:
            Rejected: the id belongs to another process, or the claim is not newer, contradicts an
                earlier one, is more than the process can have done, or finds no room.
        """
        now = arrival.monotonic_seconds
        with self._lock:
            entry = self._entries.get(claim.report_id)
            if entry is None:
                entry = self._admit(claim, arrival)
            else:
                _check_next(entry, claim, arrival.peer)
                _check_age(claim.totals, now - entry.born_monotonic_seconds)
                _check_growth(entry, claim.totals, now)
                entry.announced_wait_seconds += _announced_wait(entry.claim, claim)
                entry.claim = claim
                entry.device = claim.device if entry.device is None else entry.device
                entry.is_gone = entry.is_silent = False
                entry.report = None
            entry.announces = entry.announces or claim.phase is not None
            entry.received_monotonic_seconds = now
            entry.received_timestamp_seconds = arrival.timestamp_seconds
            self._rank_quota.use(arrival.peer.uid, claim.report_id, now)
            self._job_quota.use(arrival.peer.uid, entry.job, now)
            self.taken_total += 1

    def reports(self) -> tuple[TrainingReport, ...]:
        """Return the last report of each process, in the order in which the processes appeared, but
        of those silent for five minutes and not seen to be alive."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._checked_at >= CHECK_SECONDS:
                self._checked_at = now
                self._check(now)
            return tuple(entry.report or _report(entry) for entry in self._entries.values())

    def _admit(self, claim: Claim, arrival: Arrival) -> _Entry:
        peer, now = arrival.peer, arrival.monotonic_seconds
        leaving = self._leaving(peer.uid, claim.job, now)
        if not self._processes.may_claim(peer.pid, claim.pid):
            raise Rejected("credentials", f"pid: {claim.pid} is not the sender's")
        started = self._processes.started(peer.pid)
        age_seconds = self._processes.age_seconds(started)
        _check_age(claim.totals, age_seconds)
        for report_id in leaving:
            self._drop(report_id)
        entry = self._entries[claim.report_id] = _Entry(
            peer=peer,
            owner=self._owner(peer.uid),
            host_pids=(peer.pid, *self._processes.ancestors(peer.pid)) if peer.pid else (),
            started=started,
            born_monotonic_seconds=now - age_seconds,
            born_timestamp_seconds=(
                None if started is None else arrival.timestamp_seconds - age_seconds
            ),
            first_monotonic_seconds=now,
            first_step_seconds=claim.totals.step_seconds,
            claim=claim,
            device=claim.device,
            received_monotonic_seconds=now,
            received_timestamp_seconds=arrival.timestamp_seconds,
        )
        self._ids.setdefault(entry.job, set()).add(claim.report_id)
        return entry

    def _leaving(self, uid: int, name: str, now: float) -> set[str]:
        """Return the ids to evict before a process of this user's job can be added."""
        leaving: set[str] = set()
        if (uid, name) not in self._ids:
            job = self._job_quota.makes_room(uid, f"job: {name}", now)
            leaving |= set() if job is None else self._ids[job]
        rank = self._rank_quota.makes_room(uid, f"a process of {name}", now)
        return leaving if rank is None else leaving | {rank}

    def _drop(self, report_id: str) -> None:
        entry = self._entries.pop(report_id)
        self._rank_quota.remove(entry.peer.uid, report_id)
        ids = self._ids[entry.job]
        ids.remove(report_id)
        if not ids:
            del self._ids[entry.job]
            self._job_quota.remove(entry.peer.uid, entry.job)

    def _check(self, now: float) -> None:
        """Drop expired entries; check which of the quiet processes are gone."""
        for report_id, entry in list(self._entries.items()):
            silent = now - entry.received_monotonic_seconds
            if silent <= QUIET_SECONDS:
                continue
            ended = entry.claim.exited or entry.is_gone
            if not ended and self._is_gone(entry, silent):
                ended = entry.is_gone = True
                entry.report = None
            if silent > KEPT_SECONDS:
                if ended:
                    self._drop(report_id)
                elif not entry.is_silent and entry.claim.phase is None:
                    entry.is_silent = True
                    entry.report = None

    def _is_gone(self, entry: _Entry, silent_seconds: float) -> bool:
        if entry.started is None:
            return silent_seconds > SILENT_SECONDS
        return self._processes.started(entry.peer.pid) != entry.started


def _check_age(totals: TrainingTotals, age_seconds: float) -> None:
    """Raise Rejected where totals are more than a process of this age can have done.

    Phases need no check: `decode` has refused those that exceed the wall time of the loop.
    """
    seconds = FASTER_RATIO * max(age_seconds, 0.0) + AGE_SLACK_SECONDS
    if totals.step_seconds > seconds:
        raise _implausible("step_seconds", totals.step_seconds, f"its process has {seconds:.0f} s")
    for name, rate in MOST_PER_SECOND.items():
        count: float | None = getattr(totals, name)
        if count is not None and count > rate * seconds:
            raise _implausible(name, count, f"at most {rate:g} a second are believed")


def _check_growth(entry: _Entry, totals: TrainingTotals, now: float) -> None:
    """Raise Rejected where the loop's wall time grew faster than time since the first report."""
    grown = totals.step_seconds - entry.first_step_seconds
    elapsed = now - entry.first_monotonic_seconds
    if grown > FASTER_RATIO * elapsed + GROWTH_SLACK_SECONDS:
        raise _implausible("step_seconds", grown, f"{elapsed:.0f} s after the first report")


def _implausible(key: str, value: float, why: str) -> Rejected:
    return Rejected("implausible", f"{key}: {value:g} is too much, {why}")


def _announced_wait(before: Claim, now: Claim) -> float:
    """Return how long a wait for data took since the report that announced it."""
    if before.phase != "data":
        return 0.0
    waited, earlier = now.totals.phase_seconds, before.totals.phase_seconds
    return max(waited.get("data", 0.0) - earlier.get("data", 0.0), 0.0)


def _check_next(entry: _Entry, claim: Claim, peer: Peer) -> None:
    """Raise Rejected unless `claim` can follow the last one of its id."""
    known = entry.claim
    if peer != entry.peer or claim.pid != known.pid:
        raise Rejected("credentials", f"id: belongs to {entry.peer}")
    if claim.sequence <= known.sequence:
        raise Rejected("old", f"sequence: {claim.sequence} after {known.sequence}")
    if (claim.job, claim.rank) != (known.job, known.rank):
        raise Rejected("schema", "id: belongs to another job or rank")
    for name in _TOTALS:
        if _fell(getattr(known.totals, name), getattr(claim.totals, name)):
            raise Rejected("schema", f"{name}: fell")


def _fell(before: Any, now: Any) -> bool:
    """Return whether a number is lower or missing now, or that of a phase which had taken time."""
    if before is None:
        return False
    if isinstance(before, dict):
        return any(seconds and now.get(phase, -1.0) < seconds for phase, seconds in before.items())
    return bool(now is None or now < before)


def _report(entry: _Entry) -> TrainingReport:
    claim = entry.claim
    alive = not (claim.exited or entry.is_gone)
    entry.report = TrainingReport(
        **{name: getattr(claim, name) for name in _CLAIMED},
        device=entry.device,
        phase=claim.phase if alive else None,
        received_monotonic_seconds=entry.received_monotonic_seconds,
        received_timestamp_seconds=entry.received_timestamp_seconds,
        uid=entry.peer.uid,
        owner=entry.owner,
        host_pids=entry.host_pids,
        announces=entry.announces,
        announced_wait_seconds=entry.announced_wait_seconds,
        alive=alive,
        silent=entry.is_silent,
        born_timestamp_seconds=entry.born_timestamp_seconds,
    )
    return entry.report
