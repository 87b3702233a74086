# SPDX-License-Identifier: Apache-2.0
"""The ranks of all training jobs on this node, and what they report about its GPUs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from exporter.derive.stall import Stall, together
from exporter.errors import one_line
from exporter.model.reading import Place
from exporter.model.snapshot import Bounds, Rank
from exporter.model.training import TrainingReport
from exporter.publisher.ranks.gaps import GapClock
from exporter.publisher.ranks.places import GpuShares, listed_processes, locate
from exporter.publisher.ranks.record import RankRecord, rank_picture
from exporter.publisher.ranks.windows import SharedStall, Window

INFERRED_BY_CLIENT = "client"
"""The label `method` of a stall that is inferred from the host's wait."""
LOST_SECONDS = 30.0
"""A rank is logged after its GPU was not found for this long."""
LOST_LOG_SECONDS = 10.0
"""At most one such log line in this time: any user can cause them."""

MOST_NAME_BYTES = 128
"""Limit of a job's name with its suffix."""

log = logging.getLogger(__name__)

Job = tuple[int | None, str]
"""The user's number, and the name that the user gave the job."""

_RankKey = tuple[str, int, Place]
"""Job, rank and place: the labels of a rank's series."""


class WorkClaim(NamedTuple):
    """The FLOPs that one process reports."""

    report_id: str
    seconds: float
    flops: float
    precision: str | None
    is_done: bool = True
    """Whether the GPU has finished it; else it may only have been launched."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What the ranks report about the node's GPUs."""

    stalls: Mapping[Place, Stall] = field(default_factory=dict)
    """By share: the stall of the last seconds."""
    precisions: Mapping[str, str] = field(default_factory=dict)
    """By UUID of the GPU: the precision that every rank on it computes in."""
    work: Mapping[Place, Sequence[WorkClaim]] = field(default_factory=dict)
    """By share: the FLOPs of the processes that are alive and report any."""


class Ranks:
    """Every rank of every training job that reports to this node; for the publisher's thread."""

    def __init__(self, disbelieved: Counter[str] | None = None) -> None:
        self.disbelieved = Counter() if disbelieved is None else disbelieved
        """By reason: the minutes in which a claim was cut to what the GPU can have done."""
        self.claims = Claims()
        self._names = JobNames()
        self._keys: dict[str, _RankKey] = {}
        self._searched: dict[str, float] = {}
        """Since when its GPU is not found; infinite once that was logged."""
        self._lost_logged_at = float("-inf")
        self._records: dict[_RankKey, RankRecord] = {}
        """In the order in which they are shown."""
        self._taken_at: float | None = None
        self._shared: dict[Place, SharedStall] = {}

    def take(
        self, reports: Sequence[TrainingReport], gpus: Sequence[GpuShares], now: float
    ) -> None:
        """Take the last report of every process; a process without one is forgotten."""
        before = len(self._records)
        for report in reports:
            key = self._key(report, self._names.name(report), gpus, now)
            if key is not None:
                record = self._records.get(key)
                if record is None:
                    record = self._records[key] = RankRecord(self.disbelieved)
                record.put(report)
        if len(self._records) > before:
            self._records = dict(sorted(self._records.items(), key=_order))
        self._drop({report.report_id for report in reports})
        # A name is assigned again only once all of the job that had it is forgotten.
        self._names.keep({job_of(report) for report in reports})
        listed = listed_processes(gpus) if self._records else {}
        for (_, _, place), record in self._records.items():
            record.verify(place, listed)
        seconds = 0.0 if self._taken_at is None else now - self._taken_at
        self._taken_at = now
        for record in self._records.values():
            record.note(now, seconds)
        self.claims = self._claims(now)

    def settle(self, gaps: Mapping[Place, GapClock]) -> Mapping[Place, Bounds]:
        """Process the reports after a reading; return by share the inferred stall's growth (s)."""
        now = self._taken_at or 0.0
        bounded: dict[Place, int] = {}
        grown: list[tuple[_RankKey, Window]] = []
        for key, record in self._records.items():
            place = key[2]
            record.settle(gaps.get(place), now)
            windows = record.windows(now)
            if place.uuid is None or not record.verified:
                continue
            grown.extend((key, window) for window in windows)
            if record.alive and record.waits.bounded:
                bounded[place] = bounded.get(place, 0) + 1
        added: dict[Place, Bounds] = {}
        for key, window in grown:
            place = key[2]
            shared = self._shared.setdefault(place, SharedStall())
            more = shared.add(key, window, alone=bounded.get(place, 0) <= 1)
            before = added.get(place, Bounds(0.0, 0.0))
            added[place] = Bounds(before.lower + more.lower, before.upper + more.upper)
        return added

    def pictures(self, now: float) -> tuple[Rank, ...]:
        """Return the ranks of the snapshot."""
        return tuple(
            rank_picture(job, rank, place, record, now)
            for (job, rank, place), record in self._records.items()
            if not record.silent
        )

    def _key(
        self, report: TrainingReport, job: str, gpus: Sequence[GpuShares], now: float
    ) -> _RankKey | None:
        if report.report_id not in self._keys:
            place = locate(report, gpus)
            if place is None:
                self._log_lost(report, now)
                return None
            self._searched.pop(report.report_id, None)
            self._keys[report.report_id] = (job, report.rank, place)
        return self._keys[report.report_id]

    def _log_lost(self, report: TrainingReport, now: float) -> None:
        """Log once that the GPU of a process was not found; at most one line in 10 s."""
        since = self._searched.setdefault(report.report_id, now)
        if now - since >= LOST_SECONDS and now - self._lost_logged_at >= LOST_LOG_SECONDS:
            self._searched[report.report_id] = float("inf")
            self._lost_logged_at = now
            log.info(
                "training job %s, rank %d is not shown: its device (%s) is not a GPU of this node",
                one_line(report.job),
                report.rank,
                one_line(report.device or "not known"),
            )

    def _drop(self, present: set[str]) -> None:
        for report_id in self._searched.keys() - present:
            del self._searched[report_id]
        for report_id in self._keys.keys() - present:
            key = self._keys.pop(report_id)
            record = self._records[key]
            record.retire(report_id)
            if not record.last:
                del self._records[key]

    def _claims(self, now: float) -> Claims:
        """Return what verified ranks that are alive report about their GPUs."""
        known: dict[Place, list[RankRecord]] = {}
        precisions: dict[str, set[str]] = {}
        work: dict[Place, list[WorkClaim]] = {}
        for (_, _, place), record in self._records.items():
            if not (place.uuid and record.alive and record.verified) or record.silent:
                continue
            if record.newest.precision is not None:
                precisions.setdefault(place.uuid, set()).add(record.newest.precision)
            known.setdefault(place, []).append(record)
            for said in record.last.values():
                if said.alive and said.totals.model_flops is not None:
                    work.setdefault(place, []).append(_claim(said, said.totals.model_flops))
        return Claims(
            stalls={place: _stall(found, now) for place, found in known.items()},
            precisions={
                uuid: next(iter(found)) for uuid, found in precisions.items() if len(found) == 1
            },
            work=work,
        )


def _claim(said: TrainingReport, flops: float) -> WorkClaim:
    at, is_done = said.received_monotonic_seconds, not said.flops_launched
    return WorkClaim(said.report_id, at, flops, said.precision, is_done)


def _stall(ranks: Sequence[RankRecord], now: float) -> Stall:
    """Return the stall of the last seconds by all ranks on one share."""
    covered = [part for record in ranks if (part := record.waits.of_idle(now)) is not None]
    inferred = together(record.waits.bounds for record in ranks if record.waits.bounds is not None)
    return Stall(
        max(covered, default=None),
        {} if inferred is None else {INFERRED_BY_CLIENT: inferred},
        max(record.announced_ratio for record in ranks),
    )


def _order(item: tuple[_RankKey, RankRecord]) -> tuple[str, int, str]:
    job, rank, place = item[0]
    return job, rank, str(place)


class JobNames:
    """Assigns each job a name that is unique: one name of two users is two jobs."""

    def __init__(self) -> None:
        self._names: dict[Job, str] = {}
        self._given: set[str] = set()

    def name(self, report: TrainingReport) -> str:
        """Return the name of a report's job: its own if unique, else with its owner or a number."""
        job = job_of(report)
        name = self._names.get(job)
        if name is None:
            candidates = _candidates(report.job, report.owner)
            name = next(each for each in candidates if each not in self._given)
            self._names[job] = name
            self._given.add(name)
        return name

    def keep(self, jobs: set[Job]) -> None:
        """Forget all other jobs; their names may be assigned again."""
        for job in self._names.keys() - jobs:
            self._given.remove(self._names.pop(job))


def job_of(report: TrainingReport) -> Job:
    """Return which job a report belongs to."""
    return report.uid, report.job


def _candidates(job: str, owner: str | None) -> Iterator[str]:
    yield job
    if owner is not None:
        yield _added(job, f"uid {owner}" if owner.isdecimal() else owner)
    for number in count(2):
        yield _added(job, str(number))


def _added(job: str, suffix: str) -> str:
    tail = f" ({suffix})"
    room = MOST_NAME_BYTES - len(tail.encode())
    return job.encode()[:room].decode(errors="ignore") + tail
