# SPDX-License-Identifier: Apache-2.0
"""Every rank of every training job on this node, and what they say about its GPUs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from exporter.derive.stall import Stall, together
from exporter.errors import one_line
from exporter.model.reading import TrainingReport
from exporter.model.snapshot import Rank
from exporter.publisher.ranks.gaps import GapClock
from exporter.publisher.ranks.names import JobNames, job_of
from exporter.publisher.ranks.places import KnownGpu, Place, locate
from exporter.publisher.ranks.record import RankRecord, rank_picture
from exporter.publisher.ranks.verify import listed_processes

INFERRED_BY_CLIENT = "client"
"""The method of inference from the host wait that a job reports."""
LOST_SECONDS = 30.0
"""A rank whose GPU is not found for so long is told of in the log."""

log = logging.getLogger(__name__)


class Ranks:
    """Every rank of every training job that reports to this node; for the publisher's thread."""

    def __init__(self) -> None:
        self._names = JobNames()
        self._places: dict[str, tuple[str, int, Place]] = {}
        """By report id: what its series are named by. It never changes while the id lives, and no
        other user's has the same."""
        self._searched: dict[str, float] = {}
        """By report id: since when its GPU is sought; infinite once that was told."""
        self._known: dict[tuple[str, int, Place], RankRecord] = {}
        """In the order in which they are shown."""
        self._stalls: dict[Place, Stall] = {}
        self._precisions: dict[str, str] = {}
        self._exceeded_before = 0

    @property
    def stall_exceeds_idle(self) -> int:
        """How often a minute's stall was more than its GPU's idle time allows."""
        return self._exceeded_before + sum(known.check.exceeded for known in self._known.values())

    def take(
        self,
        reports: Sequence[TrainingReport],
        gpus: Sequence[KnownGpu],
        now: float,
        *,
        owners: bool = True,
    ) -> None:
        """Take what every process said last; those that are missing are not known any more.

        Jobs of one name are told apart by their owners, if these may be told.
        """
        before = len(self._known)
        for report in reports:
            key = self._key(report, self._names.name(report, owners=owners), gpus, now)
            if key is not None:
                known = self._known.get(key)
                if known is None:
                    known = self._known[key] = RankRecord()
                known.put(report)
        if len(self._known) > before:
            self._known = dict(sorted(self._known.items(), key=_order))
        self._drop({report.report_id for report in reports})
        # A name is given again only once nothing of the job that had it is known.
        self._names.keep({job_of(report) for report in reports})
        self._verify(gpus)
        self._look(now)

    def stall(self, uuid: str, gpu_instance: int | None) -> Stall | None:
        """Return what the ranks on a share say about the last seconds; None without any."""
        return self._stalls.get(Place(uuid, gpu_instance))

    def precision(self, uuid: str) -> str | None:
        """Return the precision that every rank on a GPU says it computes in; None without one."""
        return self._precisions.get(uuid)

    def settle(self, gaps: Callable[[str, int | None], GapClock | None]) -> None:
        """Judge what was taken, once the interval that it was said in has been integrated."""
        for (_, _, place), known in self._known.items():
            known.settle(None if place.uuid is None else gaps(place.uuid, place.gpu_instance))

    def pictures(self, now: float, *, owners: bool = True) -> tuple[Rank, ...]:
        """Return what is shown of every rank."""
        return tuple(
            rank_picture(job, rank, place, known, now, owners=owners)
            for (job, rank, place), known in self._known.items()
            if not known.silent
        )

    def _key(
        self, report: TrainingReport, job: str, gpus: Sequence[KnownGpu], now: float
    ) -> tuple[str, int, Place] | None:
        key = self._places.get(report.report_id)
        if key is None:
            place = locate(report, gpus)
            if place is None:
                self._tell_lost(report, now)
                return None
            self._searched.pop(report.report_id, None)
            key = self._places[report.report_id] = (job, report.rank, place)
        return key

    def _tell_lost(self, report: TrainingReport, now: float) -> None:
        since = self._searched.setdefault(report.report_id, now)
        if now - since >= LOST_SECONDS:
            self._searched[report.report_id] = float("inf")
            log.info(
                "training job %s, rank %d is not shown: its device (%s) is not a GPU of this node",
                one_line(report.job),
                report.rank,
                one_line(report.device or "not known"),
            )

    def _drop(self, present: set[str]) -> None:
        for report_id in self._searched.keys() - present:
            del self._searched[report_id]
        for report_id in self._places.keys() - present:
            key = self._places.pop(report_id)
            known = self._known[key]
            known.retire(report_id)
            if not known.last:
                self._exceeded_before += known.check.exceeded
                del self._known[key]

    def _verify(self, gpus: Sequence[KnownGpu]) -> None:
        """Find out which of the living ranks are on the GPU that they name."""
        listed = listed_processes(gpus) if self._known else {}
        for (_, _, place), known in self._known.items():
            known.verify(place, listed)

    def _look(self, now: float) -> None:
        """Find out what the living ranks say about their GPUs, if they are on them."""
        fresh: dict[Place, list[RankRecord]] = {}
        precisions: dict[str, set[str]] = {}
        for (_, _, place), known in self._known.items():
            if place.uuid is None or not known.alive or known.silent:
                continue
            if not known.verified:
                continue
            if known.newest.precision is not None:
                precisions.setdefault(place.uuid, set()).add(known.newest.precision)
            if known.fresh(now):
                fresh.setdefault(place, []).append(known)
        self._stalls = {place: _stall(found) for place, found in fresh.items()}
        self._precisions = {
            uuid: next(iter(found)) for uuid, found in precisions.items() if len(found) == 1
        }


def _stall(ranks: Sequence[RankRecord]) -> Stall:
    """Return what the ranks on one share say about the last seconds."""
    covered = [known.stall_of_idle for known in ranks if known.stall_of_idle is not None]
    inferred = together(known.bounds for known in ranks if known.bounds is not None)
    return Stall(
        max(covered, default=None), {} if inferred is None else {INFERRED_BY_CLIENT: inferred}
    )


def _order(item: tuple[tuple[str, int, Place], RankRecord]) -> tuple[str, int, str]:
    job, rank, place = item[0]
    return job, rank, str(place)
