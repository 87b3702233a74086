# SPDX-License-Identifier: Apache-2.0
"""What the processes of one rank reported, and what follows from it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import reduce
from operator import attrgetter
from typing import NamedTuple

from exporter.derive.stall import stall_bounds
from exporter.model.snapshot import Bounds, Rank
from exporter.model.training import (
    TRAINING_DEGRADATIONS,
    UNVERIFIED,
    TrainingReport,
    TrainingTotals,
)
from exporter.publisher.ranks.check import StallCheck
from exporter.publisher.ranks.gaps import GapClock
from exporter.publisher.ranks.places import Place
from exporter.publisher.ranks.totals import at_least, total_of
from exporter.publisher.ranks.verify import Listed, verified

BOUNDS_SECONDS = 10.0
"""Bounds are of at least this time: over less, the two observers' clocks differ too much."""
OBSERVED_RATIO = 0.9
"""Nothing is inferred from a window of which less than this part was observed."""
RECENT_SECONDS = 5.0
"""What a rank does now is judged over this time, or over its last interval if that is longer:
work and waiting take turns, and the reports come between them."""
SHORTEST_RECENT_SECONDS = 0.5
"""Nothing is judged over less."""
FRESH_SECONDS = 5.0
"""A report stands for this time, or for two of the rank's own intervals if these are longer."""
SEEN_IDLE_RATIO = 0.001
"""With a smaller part of idle time there is nothing to explain."""
MOST_RETIRED = 32
"""Ended processes of one rank whose totals are kept apart."""

_received = attrgetter("received_monotonic_seconds")


class _Times(NamedTuple):
    """Times of a rank and its GPU up to a report, or between two reports: all in seconds."""

    seconds: float
    """Up to a report: the monotonic time at which it was received."""
    wait: float
    """For data."""
    stall: float
    observed: float
    """For which the GPU was observed."""
    idle: float
    """For which the GPU was idle."""

    def since(self, before: _Times) -> _Times:
        """Return what passed since an earlier report; a claim that fell counts as nothing."""
        return _Times(
            max(self.seconds - before.seconds, 0.0),
            max(self.wait - before.wait, 0.0),
            max(self.stall - before.stall, 0.0),
            max(self.observed - before.observed, 0.0),
            max(self.idle - before.idle, 0.0),
        )


class RankRecord:
    """One rank at one place: the last reports of its processes, and what follows from them."""

    def __init__(self) -> None:
        self.last: dict[str, TrainingReport] = {}
        """By report id."""
        self.newest: TrainingReport
        """The newest of them; there is one as soon as a report was put."""
        self.alive = 0
        """How many of its processes are alive."""
        self.run_seconds = 0.0
        """Loop time of the longest-running living process, else of the newest one."""
        self.verified: bool | None = None
        """Whether the driver lists it on its GPU; None for a rank without a GPU."""
        self.check = StallCheck()
        self.wait_ratio: float | None = None
        self.stall_ratio: float | None = None
        self.stall_of_idle: float | None = None
        self.bounds: Bounds | None = None
        self._retired: dict[str, TrainingTotals] = {}
        """By report id, of processes that are no longer known and may yet report again."""
        self._folded: TrainingTotals | None = None
        """The sum over those that were retired before them."""
        self._totals = TrainingTotals()
        self._summed = False
        """Whether `_totals` are up to date."""
        self._reported_at: float | None = None
        self._settled_at: float | None = None
        self._fresh_until = 0.0
        self._recent: deque[_Times] = deque()
        """The last reports, from the newest that is old enough to judge from."""
        self._bounds_from: _Times | None = None
        """The start of the window that is not complete yet."""

    def put(self, report: TrainingReport) -> None:
        """Take the last report of one of its processes."""
        if self.last.get(report.report_id) is report:
            return
        self.last[report.report_id] = report
        self._retired.pop(report.report_id, None)
        self._update()
        received = report.received_monotonic_seconds
        self._reported_at = (
            received if self._reported_at is None else max(received, self._reported_at)
        )

    def verify(self, place: Place, listed: Listed) -> None:
        """Find out whether the driver lists one of its processes; once they ended, that stays."""
        if self.alive or self.verified is None:
            self.verified = verified(
                (report for report in self.last.values() if report.alive), place, listed
            )

    def retire(self, report_id: str) -> None:
        """Keep the totals of a process that is no longer known."""
        self._retired[report_id] = self.last.pop(report_id).totals
        self._update()
        if len(self._retired) > MOST_RETIRED:
            oldest = self._retired.pop(next(iter(self._retired)))
            self._folded = oldest if self._folded is None else total_of(self._folded, oldest)

    def _update(self) -> None:
        """Find again what depends on which processes there are."""
        reports = self.last.values()
        if reports:
            self.newest = max(reports, key=_received)
        loops = [report.totals.step_seconds for report in reports if report.alive]
        self.alive = len(loops)
        self.run_seconds = max(loops) if loops else self.newest.totals.step_seconds
        self._summed = False

    @property
    def silent(self) -> bool:
        """True while none of its processes has reported for so long that it is not shown."""
        return all(report.silent for report in self.last.values())

    @property
    def totals(self) -> TrainingTotals:
        """The sum of what its processes claim; no total ever falls."""
        if not self._summed:
            parts = [*self._retired.values(), *(report.totals for report in self.last.values())]
            if self._folded is not None:
                parts.insert(0, self._folded)
            before, now = self._totals, reduce(total_of, parts)
            # What one process claims never falls: its reports were compared with each other. But a
            # phase that took no time may be missing again.
            is_whole = len(parts) == 1 and now.phase_seconds.keys() >= before.phase_seconds.keys()
            self._totals = now if is_whole else at_least(now, before)
            self._summed = True
        return self._totals

    @property
    def degraded(self) -> tuple[str, ...]:
        """What is not measured of its living processes, and whether they are not on their GPU."""
        found = {name for each in self.last.values() if each.alive for name in each.degraded}
        if self.verified is False:
            found.add(UNVERIFIED)
        return tuple(name for name in TRAINING_DEGRADATIONS if name in found) if found else ()

    def fresh(self, now: float) -> bool:
        """Return whether what it reported of the last seconds still stands."""
        return now <= self._fresh_until and self.alive > 0

    def settle(self, gaps: GapClock | None) -> None:
        """Judge what was reported since the last time, by the idle time of its GPU up to then."""
        reported_at = self._reported_at
        if reported_at is None or reported_at == self._settled_at:
            return
        self._settled_at = reported_at
        totals = self.totals
        observed, idle = (0.0, 0.0) if gaps is None else gaps.at(reported_at)
        stalls = totals.phase_gpu_idle_seconds
        if stalls:
            self.check.add(stalls, reported_at, observed, idle)
        wait, stall = totals.phase_seconds.get("data"), stalls.get("data")
        now = _Times(reported_at, wait or 0.0, stall or 0.0, observed, idle)
        if gaps is None or wait is None or stall is not None:
            self.bounds = self._bounds_from = None
        else:
            self._bound(now)
        self._judge(now, waits=wait is not None, measured=stall is not None)

    def _bound(self, now: _Times) -> None:
        if self._bounds_from is not None:
            passed = now.since(self._bounds_from)
            if passed.seconds < BOUNDS_SECONDS:
                return
            self.bounds = (
                stall_bounds(passed.wait / passed.seconds, passed.idle / passed.observed)
                if passed.observed >= OBSERVED_RATIO * passed.seconds
                else None
            )
        self._bounds_from = now

    def _judge(self, now: _Times, *, waits: bool, measured: bool) -> None:
        recent = self._recent
        recent.append(now)
        while len(recent) > 2 and now.seconds - recent[1].seconds >= RECENT_SECONDS:
            recent.popleft()
        passed = now.since(recent[0])
        if passed.seconds < SHORTEST_RECENT_SECONDS:
            return
        self.wait_ratio = min(passed.wait / passed.seconds, 1.0) if waits else None
        self.stall_ratio = min(passed.stall / passed.seconds, 1.0) if measured else None
        self.stall_of_idle = None
        if passed.idle > SEEN_IDLE_RATIO * passed.seconds:
            if measured:
                self.stall_of_idle = passed.stall / passed.idle
            elif self.bounds is not None:
                self.stall_of_idle = self.bounds.lower * passed.observed / passed.idle
        spacing = now.seconds - recent[-2].seconds
        self._fresh_until = now.seconds + max(FRESH_SECONDS, 2 * spacing)


def rank_picture(job: str, rank: int, place: Place, record: RankRecord, now: float) -> Rank:
    """Return what is shown of a rank at monotonic time `now`."""
    newest = record.newest
    totals = record.totals
    fresh = record.fresh(now)
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
        world_size=newest.world_size,
        framework=newest.framework,
        precision=newest.precision,
        instrumentation=newest.instrumentation,
        loader=newest.loader,
        memory_bytes=newest.memory_bytes,
        data_wait_ratio=record.wait_ratio if fresh else None,
        data_stall_ratio=record.stall_ratio if fresh else None,
        owner=newest.owner,
        verified=record.verified,
        degraded=record.degraded,
    )
