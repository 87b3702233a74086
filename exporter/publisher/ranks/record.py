# SPDX-License-Identifier: Apache-2.0
"""The state of one rank, from the reports of its processes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial, reduce
from operator import add, attrgetter
from typing import Any

from exporter.model.reading import Place
from exporter.model.snapshot import Rank
from exporter.model.training import (
    TRAINING_DEGRADATIONS,
    TRAINING_PHASES,
    UNVERIFIED,
    TrainingReport,
    TrainingTotals,
)
from exporter.publisher.ranks.check import StallCheck
from exporter.publisher.ranks.gaps import GapClock
from exporter.publisher.ranks.places import Listed, verified
from exporter.publisher.ranks.waits import RankSummary, Waits
from exporter.publisher.ranks.windows import Window
from exporter.publisher.totals import merged

MOST_TICKS = 3
"""A report waits until the GPU was read up to its time, for so many ticks at most."""
UNVERIFIED_SECONDS = 30.0
"""Windows are kept for so long until the rank is verified."""
UNSEEN_SECONDS = 20.0
"""Do not wait for a GPU that was last read longer ago."""
MOST_RETIRED = 32
"""Limit of ended processes of one rank whose totals are kept one by one."""

_TOTALS = tuple(field.name for field in fields(TrainingTotals))
_received = attrgetter("received_monotonic_seconds")


class RankRecord:
    """One rank on one share: the last report of each of its processes, and their sum."""

    def __init__(self, disbelieved: Counter[str]) -> None:
        self.last: dict[str, TrainingReport] = {}
        self.newest: TrainingReport
        """The newest report; set by the first `put`."""
        self.alive = 0
        self.run_seconds = 0.0
        """The longest loop time of the processes that are alive, else that of the newest."""
        self.verified: bool | None = None
        self.since: float | None = float("inf")
        """Unix time at which the first of its processes started; None if that is not known."""
        self.check = StallCheck(disbelieved)
        self.waits = Waits()
        self.announced_ratio = 0.0
        self._retired: dict[str, TrainingTotals] = {}
        """By report id: totals of processes that are gone but may report again."""
        self._folded: TrainingTotals | None = None
        self._totals = TrainingTotals()
        self._summed = False
        self._reported_at = self._noted_at = float("-inf")
        self._announced: dict[str, float] = {}
        """By report id: seconds of announced waits up to the last tick."""
        self._unsettled: deque[tuple[RankSummary, TrainingTotals]] = deque()
        """Reports that wait until the GPU was read up to their time."""
        self._ticks = 0
        """For how many ticks the first of them has waited."""

    def put(self, report: TrainingReport) -> None:
        """Take the last report of one of its processes."""
        if self.last.get(report.report_id) is report:
            return
        self.last[report.report_id] = report
        self._retired.pop(report.report_id, None)
        born = report.born_timestamp_seconds
        self.since = None if self.since is None or born is None else min(self.since, born)
        self._update()
        self._reported_at = max(report.received_monotonic_seconds, self._reported_at)

    def verify(self, place: Place, listed: Listed) -> None:
        """Look up whether the driver lists a process of it; after the last ended that stays."""
        if self.alive or self.verified is None:
            self.verified = verified(
                (report for report in self.last.values() if report.alive), place, listed
            )

    def retire(self, report_id: str) -> None:
        """Keep the totals of a process that is gone."""
        self._retired[report_id] = self.last.pop(report_id).totals
        self._update()
        if len(self._retired) > MOST_RETIRED:
            oldest = self._retired.pop(next(iter(self._retired)))
            self._folded = oldest if self._folded is None else _each(self._folded, oldest, add)

    def _update(self) -> None:
        """Recompute what depends on the set of processes."""
        reports = self.last.values()
        if reports:
            self.newest = max(reports, key=_received)
        loops = [report.totals.step_seconds for report in reports if report.alive]
        self.alive = len(loops)
        self.run_seconds = max(loops) if loops else self.newest.totals.step_seconds
        self._summed = False

    @property
    def silent(self) -> bool:
        """Whether it is hidden because none of its processes has reported for long."""
        return all(report.silent for report in self.last.values())

    @property
    def totals(self) -> TrainingTotals:
        """The sum over its processes; no total ever falls."""
        if not self._summed:
            parts = [*self._retired.values(), *(report.totals for report in self.last.values())]
            if self._folded is not None:
                parts.insert(0, self._folded)
            before, now = self._totals, reduce(partial(_each, of=add), parts)
            # The last digit of a sum of floats depends on the order of its parts, and a counter
            # that falls has been reset. Of one process only a phase of no time may go.
            is_whole = len(parts) == 1 and now.phase_seconds.keys() >= before.phase_seconds.keys()
            self._totals = now if is_whole else _each(before, now, max)
            self._summed = True
        return self._totals

    @property
    def degraded(self) -> tuple[str, ...]:
        """The measurements that its processes lack, and whether it is unverified."""
        found = {name for each in self.last.values() if each.alive for name in each.degraded}
        if self.verified is False:
            found.add(UNVERIFIED)
        return tuple(name for name in TRAINING_DEGRADATIONS if name in found) if found else ()

    def note(self, now: float, seconds: float) -> None:
        """Queue the reports since the last tick, `seconds` before `now`."""
        self._note_announced(now, seconds)
        reported_at = self._reported_at
        if reported_at == self._noted_at:
            return
        self._noted_at = reported_at
        totals = self.totals
        living = [report for report in self.last.values() if report.alive]
        summary = RankSummary(
            seconds=reported_at,
            wait=totals.phase_seconds.get("data"),
            stall=totals.phase_gpu_idle_seconds.get("data"),
            loop_seconds=totals.step_seconds,
            waiting=len(living) == 1 and living[0].phase == "data",
            announces=any(report.announces for report in living),
            several=len(living) > 1,
            ending=not living,
        )
        self._unsettled.append((summary, totals))

    def _note_announced(self, now: float, seconds: float) -> None:
        if not self._announced and not self.newest.announces:
            return
        before, self._announced = self._announced, {}
        most = 0.0
        for report_id, report in self.last.items():
            if not report.announces:
                continue
            waited = report.announced_wait_seconds
            since = before.get(report_id, waited)
            if report.alive and report.phase == "data":
                waited += max(now - report.received_monotonic_seconds, 0.0)
            self._announced[report_id] = max(waited, since)
            most = max(most, waited - since)
        if seconds > 0.0:
            self.announced_ratio = min(most / seconds, 1.0)

    def windows(self, now: float) -> list[Window]:
        """Return the windows that grew since the last call; none until it is verified."""
        grown, self.waits.grown = self.waits.grown, []
        if self.verified:
            return grown
        self.waits.grown = [
            window for window in grown if now - window.begin.seconds <= UNVERIFIED_SECONDS
        ]
        return []

    def settle(self, gaps: GapClock | None, now: float) -> None:
        """Process queued reports that the readings of its GPU have caught up with."""
        while self._unsettled:
            summary, totals = self._unsettled[0]
            seen = None if gaps is None else gaps.end
            if seen is not None and seen < summary.seconds <= seen + UNSEEN_SECONDS:
                self._ticks += 1
                if self._ticks < MOST_TICKS:
                    break
            self._unsettled.popleft()
            self._ticks = 0
            stalls = totals.phase_gpu_idle_seconds
            if stalls:
                times = None if gaps is None else gaps.at(summary.seconds)
                observed, idle = (0.0, 0.0) if times is None else (times.observed, times.idle)
                self.check.add(stalls, summary.seconds, observed, idle)
            self.waits.add(summary, gaps)
        self.waits.judge(now, gaps)


def rank_picture(job: str, rank: int, place: Place, record: RankRecord, now: float) -> Rank:
    """Return a rank for the snapshot at monotonic time `now`."""
    newest = record.newest
    totals = record.totals
    fresh = record.alive > 0 and record.waits.fresh(now)
    if totals.phase_gpu_idle_seconds and record.check.passed is not totals.phase_gpu_idle_seconds:
        totals = replace(totals, phase_gpu_idle_seconds=record.check.passed)
    return Rank(
        job=job,
        rank=rank,
        gpu_uuid=place.uuid,
        gpu_instance=place.gpu_instance,
        totals=totals,
        processes=record.alive,
        run_seconds=record.run_seconds,
        last_report_timestamp_seconds=newest.received_timestamp_seconds,
        since_timestamp_seconds=record.since,
        world_size=newest.world_size,
        framework=newest.framework,
        precision=newest.precision,
        instrumentation=newest.instrumentation,
        loader=newest.loader,
        host=newest.host if record.alive else None,
        memory_bytes=newest.memory_bytes,
        data_wait_ratio=record.waits.wait_ratio if fresh else None,
        data_stall_ratio=record.waits.stall_ratio if fresh else None,
        owner=newest.owner,
        verified=record.verified,
        degraded=record.degraded,
        phase=newest.phase if newest.alive else None,
    )


def _each(
    one: TrainingTotals, other: TrainingTotals, of: Callable[[float, float], float]
) -> TrainingTotals:
    """Apply `of` to each two totals; phases keep the order of TRAINING_PHASES."""
    return TrainingTotals(
        **{name: _ordered(merged(getattr(one, name), getattr(other, name), of)) for name in _TOTALS}
    )


def _ordered(total: Any) -> Any:
    if not isinstance(total, dict):
        return total
    return {phase: total[phase] for phase in TRAINING_PHASES if phase in total}
