# SPDX-License-Identifier: Apache-2.0
"""What the processes of one rank said, and what is made of it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import reduce
from operator import attrgetter
from typing import NamedTuple

from exporter.derive.stall import stall_bounds
from exporter.model.reading import TRAINING_DEGRADATIONS, UNVERIFIED, TrainingReport, TrainingTotals
from exporter.model.snapshot import Bounds, Rank
from exporter.publisher.ranks.check import StallCheck
from exporter.publisher.ranks.gaps import GapClock
from exporter.publisher.ranks.places import Place
from exporter.publisher.ranks.totals import at_least, total_of
from exporter.publisher.ranks.verify import Listed, verified

BOUNDS_SECONDS = 10.0
"""Bounds hold for at least so long: below, the two observers' clocks weigh too much."""
OBSERVED_RATIO = 0.9
"""Of a window in which less than this share was observed, nothing is inferred."""
LATELY_SECONDS = 5.0
"""What a rank does of late is judged over so long, or over its last interval: work and waiting
take turns, and the reports come between them."""
SHORTEST_LATELY_SECONDS = 0.5
FRESH_SECONDS = 5.0
"""What a rank said stands for so long, or for two of its own intervals."""
SEEN_IDLE_RATIO = 0.001
"""With less idle time than that there is nothing to explain."""
MOST_RETIRED = 32
"""Ended processes of one rank that are told apart."""

_received = attrgetter("received_monotonic_seconds")


class _Said(NamedTuple):
    """A moment at which a rank spoke, or what passed between two: all in seconds."""

    seconds: float
    wait: float
    """For data."""
    stall: float
    observed: float
    """Of the GPU."""
    idle: float

    def since(self, before: _Said) -> _Said:
        """Return what passed since an earlier moment; a claim that fell counts as nothing."""
        return _Said(
            max(self.seconds - before.seconds, 0.0),
            max(self.wait - before.wait, 0.0),
            max(self.stall - before.stall, 0.0),
            max(self.observed - before.observed, 0.0),
            max(self.idle - before.idle, 0.0),
        )


class RankRecord:
    """One rank at one place: its processes' last reports, and what is made of them."""

    def __init__(self) -> None:
        self.last: dict[str, TrainingReport] = {}
        """By report id."""
        self.newest: TrainingReport
        """The last report of any of its processes; there is one once it was put."""
        self.alive = 0
        """How many of its processes are."""
        self.run_seconds = 0.0
        """Loop time of the longest-running process alive; of the newest one where none is."""
        self.verified: bool | None = None
        """Whether the driver lists it on its GPU; None without one."""
        self.check = StallCheck()
        self.wait_ratio: float | None = None
        self.stall_ratio: float | None = None
        self.stall_of_idle: float | None = None
        self.bounds: Bounds | None = None
        self._retired: dict[str, TrainingTotals] = {}
        """By report id, of processes that are not known any more and may yet speak again."""
        self._folded: TrainingTotals | None = None
        """Of those that were retired before them."""
        self._totals = TrainingTotals()
        self._summed = False
        """Whether `_totals` are those of now."""
        self._said_at: float | None = None
        self._settled_at: float | None = None
        self._fresh_until = 0.0
        self._lately: deque[_Said] = deque()
        """The last reports, from the newest that is old enough to judge from."""
        self._bounds_from: _Said | None = None
        """The start of the window under way."""

    def put(self, report: TrainingReport) -> None:
        """Take what one of its processes said last."""
        if self.last.get(report.report_id) is report:
            return
        self.last[report.report_id] = report
        self._retired.pop(report.report_id, None)
        self._look_again()
        said = report.received_monotonic_seconds
        self._said_at = said if self._said_at is None else max(said, self._said_at)

    def verify(self, place: Place, listed: Listed) -> None:
        """Hold its processes against those that the driver lists; once they ended, it stays."""
        if self.alive or self.verified is None:
            self.verified = verified(
                (report for report in self.last.values() if report.alive), place, listed
            )

    def retire(self, report_id: str) -> None:
        """Keep the totals of a process that is not known any more."""
        self._retired[report_id] = self.last.pop(report_id).totals
        self._look_again()
        if len(self._retired) > MOST_RETIRED:
            oldest = self._retired.pop(next(iter(self._retired)))
            self._folded = oldest if self._folded is None else total_of(self._folded, oldest)

    def _look_again(self) -> None:
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
        """All that its processes claim; none ever falls."""
        if not self._summed:
            parts = [*self._retired.values(), *(report.totals for report in self.last.values())]
            if self._folded is not None:
                parts.insert(0, self._folded)
            before, now = self._totals, reduce(total_of, parts)
            # What one process claims never falls, as what it said before was compared. But a phase
            # that took no time may be missing again.
            is_whole = len(parts) == 1 and now.phase_seconds.keys() >= before.phase_seconds.keys()
            self._totals = now if is_whole else at_least(now, before)
            self._summed = True
        return self._totals

    @property
    def degraded(self) -> tuple[str, ...]:
        """What of its living processes is not measured, and whether they are not on their GPU."""
        found = {name for each in self.last.values() if each.alive for name in each.degraded}
        if self.verified is False:
            found.add(UNVERIFIED)
        return tuple(name for name in TRAINING_DEGRADATIONS if name in found) if found else ()

    def fresh(self, now: float) -> bool:
        """Tell whether what it said of the last seconds still stands."""
        return now <= self._fresh_until and self.alive > 0

    def settle(self, gaps: GapClock | None) -> None:
        """Judge what was said since the last time, by the idle time of its GPU up to then."""
        said = self._said_at
        if said is None or said == self._settled_at:
            return
        self._settled_at = said
        totals = self.totals
        observed, idle = (0.0, 0.0) if gaps is None else gaps.at(said)
        stalls = totals.phase_gpu_idle_seconds
        if stalls:
            self.check.add(stalls, said, observed, idle)
        wait, stall = totals.phase_seconds.get("data"), stalls.get("data")
        now = _Said(said, wait or 0.0, stall or 0.0, observed, idle)
        if gaps is None or wait is None or stall is not None:
            self.bounds = self._bounds_from = None
        else:
            self._bound(now)
        self._judge(now, waits=wait is not None, measured=stall is not None)

    def _bound(self, now: _Said) -> None:
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

    def _judge(self, now: _Said, *, waits: bool, measured: bool) -> None:
        lately = self._lately
        lately.append(now)
        while len(lately) > 2 and now.seconds - lately[1].seconds >= LATELY_SECONDS:
            lately.popleft()
        passed = now.since(lately[0])
        if passed.seconds < SHORTEST_LATELY_SECONDS:
            return
        self.wait_ratio = min(passed.wait / passed.seconds, 1.0) if waits else None
        self.stall_ratio = min(passed.stall / passed.seconds, 1.0) if measured else None
        self.stall_of_idle = None
        if passed.idle > SEEN_IDLE_RATIO * passed.seconds:
            if measured:
                self.stall_of_idle = passed.stall / passed.idle
            elif self.bounds is not None:
                self.stall_of_idle = self.bounds.lower * passed.observed / passed.idle
        spacing = now.seconds - lately[-2].seconds
        self._fresh_until = now.seconds + max(FRESH_SECONDS, 2 * spacing)


def rank_picture(
    job: str, rank: int, place: Place, known: RankRecord, now: float, *, owners: bool
) -> Rank:
    """Return what is shown of a rank at monotonic time `now`."""
    newest = known.newest
    totals = known.totals
    fresh = known.fresh(now)
    if totals.phase_gpu_idle_seconds and known.check.passed is not totals.phase_gpu_idle_seconds:
        totals = replace(totals, phase_gpu_idle_seconds=known.check.passed)
    return Rank(
        job=job,
        rank=rank,
        gpu_uuid=place.uuid,
        gpu_instance=place.gpu_instance,
        totals=totals,
        processes=known.alive,
        run_seconds=known.run_seconds,
        last_report_timestamp_seconds=newest.received_timestamp_seconds,
        world_size=newest.world_size,
        framework=newest.framework,
        precision=newest.precision,
        instrumentation=newest.instrumentation,
        loader=newest.loader,
        memory_bytes=newest.memory_bytes,
        data_wait_ratio=known.wait_ratio if fresh else None,
        data_stall_ratio=known.stall_ratio if fresh else None,
        owner=newest.owner if owners else None,
        verified=known.verified,
        degraded=known.degraded,
    )
