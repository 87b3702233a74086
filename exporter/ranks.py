# SPDX-License-Identifier: Apache-2.0
"""Which GPU each training rank runs on, what its processes did together, what to believe of it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from exporter.derive.stall import (
    CHECK_SECONDS,
    Stall,
    believable_seconds,
    stall_bounds,
    together,
)
from exporter.errors import one_line
from exporter.reading import (
    NO_DEVICE,
    TRAINING_PHASES,
    Device,
    ShareReading,
    TrainingReport,
    TrainingTotals,
)
from exporter.snapshot import Bounds, Rank

INFERRED_BY_CLIENT = "client"
"""The method of inference from the host wait that a job reports."""
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
LOST_SECONDS = 30.0
"""A rank whose GPU is not found for so long is told of in the log."""
MOST_RETIRED = 32
"""Ended processes of one rank that are told apart."""
NOTICED_SECONDS = 0.001
"""Less than that beyond what is believable is rounding."""

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A share of a GPU as the labels name it; without UUID: no GPU at all."""

    uuid: str | None
    gpu_instance: int | None


NOWHERE = Place(None, None)

KnownGpu = tuple[Device, Sequence[ShareReading]]


class GapClock:
    """How long a share was observed, and how long nothing ran on it, as functions of time."""

    def __init__(self) -> None:
        self._from = self._to = (0.0, 0.0, 0.0)
        """Monotonic time, observed and idle seconds up to it."""

    def advance(self, monotonic: float, seconds: float, gap_ratio: float | None) -> None:
        """Add an interval that ends at `monotonic`; None if it was not observed."""
        _, observed, idle = self._from = self._to
        if gap_ratio is not None:
            observed += seconds
            idle += gap_ratio * seconds
        self._to = (monotonic, observed, idle)

    def at(self, monotonic: float) -> tuple[float, float]:
        """Return the observed and the idle seconds up to a time around the last interval."""
        (start, *before), (end, *now) = self._from, self._to
        length = end - start
        part = 1.0 if length <= 0 else min(max((monotonic - start) / length, 0.0), 1.0)
        observed, idle = (b + part * (n - b) for b, n in zip(before, now, strict=True))
        return observed, idle


def locate(report: TrainingReport, gpus: Iterable[KnownGpu]) -> Place | None:
    """Return where a process runs by what it says of its device, else by its pid; None: unknown.

    A UUID counts by its digits alone: under MIG some runtimes give the parent's, and older drivers
    name a MIG device ``MIG-GPU-<uuid of the GPU>/<GPU instance>/<compute instance>``.
    """
    if report.device == NO_DEVICE:
        return NOWHERE
    if report.device is None:
        return _by_pid(report.host_pid, gpus)
    digits, _, instances = _digits(report.device).partition("/")
    for device, shares in gpus:
        for instance in device.instances:
            if _digits(instance.mig_uuid) == digits:
                return Place(device.uuid, instance.gpu_instance)
        if _digits(device.uuid) != digits:
            continue
        if not device.mig:
            return Place(device.uuid, None)
        known = {instance.gpu_instance for instance in device.instances}
        named = instances.partition("/")[0]
        if named.isdecimal() and int(named) in known:
            return Place(device.uuid, int(named))
        if len(known) == 1:
            return Place(device.uuid, known.pop())
        return _by_pid(report.host_pid, [(device, shares)])
    return None


def _digits(uuid: str) -> str:
    return uuid.lower().removeprefix("mig-").removeprefix("gpu-")


def _by_pid(pid: int | None, gpus: Iterable[KnownGpu]) -> Place | None:
    if pid is None:
        return None
    for device, shares in gpus:
        for share in shares:
            if any(process.pid == pid for process in share.processes or ()):
                return Place(device.uuid, share.gpu_instance)
    return None


def _sum(one: TrainingTotals, other: TrainingTotals) -> TrainingTotals:
    return TrainingTotals(
        steps=one.steps + other.steps,
        batches=one.batches + other.batches,
        samples=_known_sum(one.samples, other.samples),
        step_seconds=one.step_seconds + other.step_seconds,
        phase_seconds=_sum_by_phase(one.phase_seconds, other.phase_seconds),
        phase_gpu_idle_seconds=_sum_by_phase(
            one.phase_gpu_idle_seconds, other.phase_gpu_idle_seconds
        ),
        model_flops=_known_sum(one.model_flops, other.model_flops),
    )


def _known_sum(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _sum_by_phase(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    return {
        phase: one.get(phase, 0.0) + other.get(phase, 0.0)
        for phase in TRAINING_PHASES
        if phase in one or phase in other
    }


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
        return _Said._make(max(now - then, 0.0) for now, then in zip(self, before, strict=True))


class _Check:
    """Which part of a rank's exposed stall fits the idle time of its GPU, window by window.

    A window ends with the first report after a minute. What does not fit is kept until then, in
    case the GPU's readings catch up, and is then dropped: what was let through never falls.
    """

    def __init__(self) -> None:
        self.passed: dict[str, float] = {}
        self.exceeded = 0
        """Windows in which something had to be dropped."""
        self._claimed: Mapping[str, float] | None = None
        self._waiting: dict[str, float] = {}
        self._start = (0.0, 0.0, 0.0)
        self._passed_in_window = 0.0

    def add(self, claimed: Mapping[str, float], now: float, observed: float, idle: float) -> None:
        """Take the stall claimed up to monotonic time `now`, by phase, and the GPU's times."""
        if self._claimed is None:
            self.passed = dict(claimed)
            self._start = (now, observed, idle)
        else:
            for phase, seconds in claimed.items():
                more = seconds - self._claimed.get(phase, 0.0)
                self._waiting[phase] = self._waiting.get(phase, 0.0) + max(more, 0.0)
            self._let_through(now, observed, idle)
        self._claimed = claimed

    def _let_through(self, now: float, observed: float, idle: float) -> None:
        start, observed_before, idle_before = self._start
        seconds = now - start
        believable = believable_seconds(
            idle - idle_before, max(seconds - (observed - observed_before), 0.0), seconds
        )
        wanted = sum(self._waiting.values())
        room = max(believable - self._passed_in_window, 0.0)
        part = 1.0 if wanted <= room else room / wanted
        for phase, waiting in self._waiting.items():
            self.passed[phase] = self.passed.get(phase, 0.0) + part * waiting
            self._waiting[phase] = (1.0 - part) * waiting
        self._passed_in_window += part * wanted
        if seconds >= CHECK_SECONDS:
            if (1.0 - part) * wanted > NOTICED_SECONDS:
                self.exceeded += 1
            self._waiting.clear()
            self._start = (now, observed, idle)
            self._passed_in_window = 0.0


class _Known:
    """One rank at one place: its processes' last reports, and what is made of them."""

    def __init__(self) -> None:
        self.last: dict[str, TrainingReport] = {}
        """By report id."""
        self.check = _Check()
        self.wait_ratio: float | None = None
        self.stall_ratio: float | None = None
        self.stall_of_idle: float | None = None
        self.bounds: Bounds | None = None
        self._retired: dict[str, TrainingTotals] = {}
        """By report id, of processes that are not known any more and may yet speak again."""
        self._folded = TrainingTotals()
        """Of those that were retired before them."""
        self._said_at: float | None = None
        self._settled_at: float | None = None
        self._fresh_until = 0.0
        self._lately: deque[_Said] = deque()
        """The last reports, from the newest that is old enough to judge from."""
        self._bounds_from: _Said | None = None
        """The start of the window under way."""

    def put(self, report: TrainingReport) -> None:
        self.last[report.report_id] = report
        self._retired.pop(report.report_id, None)
        said = report.received_monotonic_seconds
        self._said_at = said if self._said_at is None else max(said, self._said_at)

    def retire(self, report_id: str) -> None:
        """Keep the totals of a process that is not known any more."""
        self._retired[report_id] = self.last.pop(report_id).totals
        if len(self._retired) > MOST_RETIRED:
            self._folded = _sum(self._folded, self._retired.pop(next(iter(self._retired))))

    @property
    def totals(self) -> TrainingTotals:
        """All that its processes claim."""
        totals = self._folded
        for earlier in self._retired.values():
            totals = _sum(totals, earlier)
        for report in self.last.values():
            totals = _sum(totals, report.totals)
        return totals

    @property
    def newest(self) -> TrainingReport:
        return max(self.last.values(), key=lambda report: report.received_monotonic_seconds)

    @property
    def alive(self) -> int:
        return sum(report.alive for report in self.last.values())

    def fresh(self, now: float) -> bool:
        return self.alive > 0 and now <= self._fresh_until

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
        wait = totals.phase_seconds.get("data", 0.0)
        now = _Said(said, wait, stalls.get("data", 0.0), observed, idle)
        if gaps is None or stalls:
            self.bounds = self._bounds_from = None
        else:
            self._bound(now)
        self._judge(now, measured=bool(stalls))

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

    def _judge(self, now: _Said, *, measured: bool) -> None:
        lately = self._lately
        lately.append(now)
        while len(lately) > 2 and now.seconds - lately[1].seconds >= LATELY_SECONDS:
            lately.popleft()
        passed = now.since(lately[0])
        if passed.seconds < SHORTEST_LATELY_SECONDS:
            return
        self.wait_ratio = min(passed.wait / passed.seconds, 1.0)
        self.stall_ratio = min(passed.stall / passed.seconds, 1.0) if measured else None
        self.stall_of_idle = None
        if passed.idle > SEEN_IDLE_RATIO * passed.seconds:
            if measured:
                self.stall_of_idle = passed.stall / passed.idle
            elif self.bounds is not None:
                self.stall_of_idle = self.bounds.lower * passed.observed / passed.idle
        spacing = now.seconds - lately[-2].seconds
        self._fresh_until = now.seconds + max(FRESH_SECONDS, 2 * spacing)


class Ranks:
    """Every rank of every training job that reports to this node; for the publisher's thread."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, int, Place]] = {}
        """By report id: what its series are named by. It never changes while the id lives."""
        self._searched: dict[str, float] = {}
        """By report id: since when its GPU is sought; infinite once that was told."""
        self._known: dict[tuple[str, int, Place], _Known] = {}
        self._stalls: dict[Place, Stall] = {}
        self._precisions: dict[str, str] = {}
        self._exceeded_before = 0

    @property
    def stall_exceeds_idle(self) -> int:
        """How often a minute's stall was more than its GPU's idle time allows."""
        return self._exceeded_before + sum(known.check.exceeded for known in self._known.values())

    def take(self, reports: Sequence[TrainingReport], gpus: Sequence[KnownGpu], now: float) -> None:
        """Take what every process said last; those that are missing are not known any more."""
        for report in reports:
            key = self._key(report, gpus, now)
            if key is not None:
                known = self._known.get(key)
                if known is None:
                    known = self._known[key] = _Known()
                known.put(report)
        self._drop({report.report_id for report in reports})
        self._stalls = self._by_place(now) if self._known else {}
        self._precisions = self._agreed_precisions() if self._known else {}

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

    def pictures(self, now: float) -> tuple[Rank, ...]:
        """Return what is shown of every rank."""
        return tuple(
            _picture(job, rank, place, known, now)
            for (job, rank, place), known in sorted(
                self._known.items(), key=lambda item: (item[0][:2], str(item[0][2]))
            )
        )

    def _key(
        self, report: TrainingReport, gpus: Sequence[KnownGpu], now: float
    ) -> tuple[str, int, Place] | None:
        key = self._places.get(report.report_id)
        if key is None:
            place = locate(report, gpus)
            if place is None:
                self._tell_lost(report, now)
                return None
            self._searched.pop(report.report_id, None)
            key = self._places[report.report_id] = (report.job, report.rank, place)
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

    def _by_place(self, now: float) -> dict[Place, Stall]:
        ranks: dict[Place, list[_Known]] = {}
        for (_, _, place), known in self._known.items():
            if place.uuid is not None and known.fresh(now):
                ranks.setdefault(place, []).append(known)
        stalls = {}
        for place, found in ranks.items():
            covered = [known.stall_of_idle for known in found if known.stall_of_idle is not None]
            inferred = together(known.bounds for known in found if known.bounds is not None)
            stalls[place] = Stall(
                max(covered, default=None),
                {} if inferred is None else {INFERRED_BY_CLIENT: inferred},
            )
        return stalls

    def _agreed_precisions(self) -> dict[str, str]:
        said: dict[str, set[str]] = {}
        for (_, _, place), known in self._known.items():
            precision = known.newest.precision
            if place.uuid is not None and precision is not None and known.alive:
                said.setdefault(place.uuid, set()).add(precision)
        return {uuid: next(iter(found)) for uuid, found in said.items() if len(found) == 1}


def _picture(job: str, rank: int, place: Place, known: _Known, now: float) -> Rank:
    newest = known.newest
    totals = known.totals
    fresh = known.fresh(now)
    return Rank(
        job=job,
        rank=rank,
        gpu_uuid=place.uuid,
        gpu_instance=place.gpu_instance,
        totals=TrainingTotals(
            steps=totals.steps,
            batches=totals.batches,
            samples=totals.samples,
            step_seconds=totals.step_seconds,
            phase_seconds=totals.phase_seconds,
            phase_gpu_idle_seconds=dict(known.check.passed),
            model_flops=totals.model_flops,
        ),
        processes=known.alive,
        last_report_timestamp_seconds=newest.received_timestamp_seconds,
        world_size=newest.world_size,
        framework=newest.framework,
        precision=newest.precision,
        instrumentation=newest.instrumentation,
        loader=newest.loader,
        memory_bytes=newest.memory_bytes,
        data_wait_ratio=known.wait_ratio if fresh else None,
        data_stall_ratio=known.stall_ratio if fresh else None,
    )
