# SPDX-License-Identifier: Apache-2.0
"""Plays a recording as if its GPUs were read now."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar, get_args

from exporter.clock import Clock
from exporter.model.readers import NO_COUNTER_STATES, CounterState
from exporter.model.reading import Board, Device, Health, Reading, SlotReport, Vitals, XidRecord
from exporter.model.snapshot import SourceState
from exporter.model.workload import Scheduler
from exporter.sources.recording import Damage, Recording, Tick
from exporter.sources.recording.totals import Rebase
from exporter.sources.recording.work import PlayedWork, Said, States

NAME = "replay"

Part = TypeVar("Part", Vitals, Board, Health)
Value = TypeVar("Value")

log = logging.getLogger(__name__)


class FastClock:
    """A clock on which `speed` seconds pass in each second of another; its Unix time is true."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock = clock
        self._speed = speed
        self._started = clock.monotonic()

    def time(self) -> float:
        """Return Unix time."""
        return self._clock.time()

    def monotonic(self) -> float:
        """Return the time of a clock that never steps and runs `speed` times as fast."""
        return self._started + (self._clock.monotonic() - self._started) * self._speed


class _Shown:
    """The parts of one GPU's last reading, each as recorded and as shown.

    A part that did not change is shown as the same object: later stages take that for unchanged
    values.
    """

    def __init__(self) -> None:
        self.device: tuple[Device, Device] | None = None
        self.board: tuple[Board, Board] | None = None
        self.health: tuple[Health, Health] | None = None
        self.reading: tuple[Reading, Reading] | None = None


class Replay:
    """Hands over a recording's ticks, at most one a round, when `clock` says that they are due.

    With a `FastClock` and ticks at the recording's own interval, a recording plays `speed` times
    as fast and every snapshot is the same as the live one.
    """

    name = NAME

    def __init__(
        self, recording: Recording, clock: Clock, *, speed: float = 1.0, loop: bool = False
    ) -> None:
        self._recording = recording
        self._clock = clock
        self._speed = speed
        self._loop = loop
        self._interval = recording.header.interval_seconds
        self._ticks: Iterator[Tick] = recording.ticks()
        self._next: Tick | None = None
        self._origin: float | None = None
        """Monotonic time at which the recording began, in this pass; None before its first tick."""
        self._resumes_at: float | None = None
        """When the first tick of a later pass is due."""
        self._tick = Tick(0.0)
        """The tick that is shown."""
        self._played = False
        """Whether this pass had a tick."""
        self._logged_damage = False
        self._ended: str | None = None
        self._rebase = Rebase()
        self._shown: dict[int, _Shown] = {}
        self._reports: tuple[SlotReport, ...] = ()
        self._xids: dict[str, dict[int, XidRecord]] = {}
        self._earlier_xids: dict[str, dict[int, XidRecord]] = {}
        """As shown when this pass began; so are the two below."""
        self._earlier_failures: dict[int, dict[str, int]] = {}
        self._earlier_source_failures: dict[str, int] = {}
        self._work_states: dict[Scheduler, SourceState] = {}
        """As shown with this tick, which was shown at the time below."""
        self._shown_at = 0.0
        self.workloads = tuple(
            PlayedWork(name, self._said, self._states) for name in get_args(Scheduler)
        )
        """What the sources of workloads of the recorded node said."""
        self._earlier_initialisations = 0

    def start(self) -> None:
        """Begin: the first round shows the first tick."""

    def stop(self) -> None:
        """End; there is nothing to close."""

    @property
    def problem(self) -> str | None:
        """Why the recording has ended, else the problem that the recorded node had."""
        return self._ended or self._tick.problem

    @property
    def failed_initialisations(self) -> int:
        """How often the recorded node's library could not be initialised."""
        return self._earlier_initialisations + self._tick.failed_initialisations

    @property
    def counter_states(self) -> Mapping[str, CounterState]:
        """None: a recording has what the shares of its GPUs had."""
        return NO_COUNTER_STATES

    def xids(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids recorded so far, by UUID."""
        return self._xids

    def devices(self) -> Mapping[str, int]:
        """Return how many GPUs the recorded node counted, by who counted."""
        return self._tick.devices

    def reports(self) -> tuple[SlotReport, ...]:
        """Return what was known of every GPU."""
        return self._reports

    def round(self, wait_seconds: float) -> None:
        """Show the next tick if it is due, to half an interval; never wait."""
        if self._next is None and self._ended is None:
            self._next = self._fetch()
        tick = self._next
        if tick is None:
            return
        now = self._clock.monotonic()
        if self._origin is None:
            first = now if self._resumes_at is None else self._resumes_at
            self._origin = first - tick.seconds
        late = now - self._origin - tick.seconds
        if late < -self._interval / 2:
            return
        if late > self._interval:  # slow down instead of skipping ticks
            self._origin += late
        self._next = None
        self._show(tick, now, self._origin)

    def _fetch(self) -> Tick | None:
        """Return the next tick, if need be that of the next pass; None once it has ended."""
        while self._ended is None:
            try:
                tick = next(self._ticks)
            except StopIteration:
                self._end_pass(f"the recording {self._recording.path.name} has ended")
            except Damage as damage:
                if not self._logged_damage:
                    self._logged_damage = True
                    log.warning("%s; the recording plays up to there", damage)
                self._end_pass(f"the recording has ended: {self._without_folder(damage)}")
            else:
                self._played = True
                return tick
        return None

    def _without_folder(self, damage: Damage) -> str:
        """Return what is wrong as everybody may read it: where the file lies is for the log."""
        path = self._recording.path
        return str(damage).replace(str(path), path.name)

    def _end_pass(self, reason: str) -> None:
        if not self._loop or not self._played:
            self._ended = reason if self._played else f"{reason}; it holds no readings"
            log.info("%s", self._ended)
            return
        if self._origin is not None:
            self._resumes_at = self._origin + self._tick.seconds + self._interval
            self._origin = None
        self._ticks = self._recording.ticks()
        self._played = False
        self._rebase.start_over()
        self._earlier_xids = self._xids
        self._earlier_initialisations += self._tick.failed_initialisations
        for report in self._reports:
            self._earlier_failures[report.index] = dict(report.failures)
        for name, state in self._work_states.items():
            self._earlier_source_failures[name] = state.failures_total
        # What was shown in the last pass was moved by another offset.
        self._shown.clear()

    def _show(self, tick: Tick, now: float, origin: float) -> None:
        self._tick = tick
        unix = self._clock.time()
        self._reports = tuple(self._report(report, now, origin, unix) for report in tick.gpus)
        started = self._recording.header.started_unix_seconds
        xids = {uuid: dict(records) for uuid, records in self._earlier_xids.items()}
        for uuid, records in tick.xids.items():
            shown = xids.setdefault(uuid, {})
            for code, record in records.items():
                age = now - origin - (record.last_timestamp_seconds - started)
                earlier = shown[code].count if code in shown else 0
                shown[code] = XidRecord(earlier + record.count, unix - max(age, 0.0) / self._speed)
        self._xids = xids
        self._shown_at = now
        self._work_states = {
            name: replace(
                state,
                failures_total=state.failures_total + self._earlier_source_failures.get(name, 0),
            )
            for name, state in tick.workload_sources.items()
        }

    def _said(self) -> Said:
        return self._tick.workloads or {}

    def _states(self) -> States:
        """Return how the sources were doing; after the end their word grows old."""
        since = max(self._clock.monotonic() - self._shown_at, 0.0)
        return {
            name: replace(
                state,
                up=state.up and self._ended is None,
                age_seconds=None if state.age_seconds is None else state.age_seconds + since,
            )
            for name, state in self._work_states.items()
        }

    def _report(self, report: SlotReport, now: float, origin: float, unix: float) -> SlotReport:
        shown = self._shown.setdefault(report.index, _Shown())
        device = reading = None
        if report.device is not None:
            if shown.device is None or shown.device[0] is not report.device:
                shown.device = report.device, replace(report.device, source=NAME)
            device = shown.device[1]
        if report.reading is not None:
            if shown.reading is None or shown.reading[0] is not report.reading:
                moved = self._moved(report.reading, shown, now, origin, unix)
                shown.reading = report.reading, moved
            reading = shown.reading[1]
        failures = dict(self._earlier_failures.get(report.index, {}))
        for source, count in self._renamed(report.failures).items():
            failures[source] = failures.get(source, 0) + count
        return SlotReport(report.index, device, reading, report.problem, failures)

    def _moved(
        self, reading: Reading, shown: _Shown, now: float, origin: float, unix: float
    ) -> Reading:
        """Return a recorded reading as if it was taken now."""
        device = shown.device[1] if shown.device is not None else reading.device
        if shown.board is None or shown.board[0] is not reading.board:
            shown.board = reading.board, self._rebased(device, reading.board)
        health = reading.health
        if health is not None:
            if shown.health is None or shown.health[0] is not health:
                shown.health = health, self._rebased(device, health)
            health = shown.health[1]
        monotonic = origin + reading.monotonic_seconds
        return replace(
            reading,
            device=device,
            timestamp_seconds=unix - max(now - monotonic, 0.0) / self._speed,
            monotonic_seconds=monotonic,
            vitals=self._rebased(device, reading.vitals),
            board=shown.board[1],
            health=health,
            read_seconds=self._renamed(reading.read_seconds),
        )

    def _rebased(self, device: Device, part: Part) -> Part:
        return self._rebase.moved(device.uuid, part) if self._loop else part

    def _renamed(self, by_source: Mapping[str, Value]) -> dict[str, Value]:
        """Return the same, under this source's name in place of the recorded one's."""
        recorded = self._recording.header.source
        return {NAME if name == recorded else name: item for name, item in by_source.items()}
