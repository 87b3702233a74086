# SPDX-License-Identifier: Apache-2.0
"""Plays a recording as if its GPUs were read now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_args

from exporter.clock import Clock
from exporter.model.readers import NO_COUNTER_STATES
from exporter.model.reading import Board, Device, Health, Reading, SlotReport, Vitals, XidRecord
from exporter.model.snapshot import SourceState
from exporter.model.workload import Scheduler, WorkloadReport
from exporter.sources.interface import AlwaysOn
from exporter.sources.recording import Damage, Recording, Tick

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


class ReplayedWorkloads(AlwaysOn):
    """A workload source of the recorded node, under the name that it had there."""

    def __init__(self, name: Scheduler, replay: Replay) -> None:
        self.name: str = name
        self._scheduler = name
        self._replay = replay

    def report(self) -> WorkloadReport | None:
        """Return its report at this tick; the same object until it changes."""
        return self._replay.workload_reports.get(self._scheduler)

    @property
    def state(self) -> SourceState | None:
        """Its state; None while it was not in use. After the end its report grows old."""
        return self._replay.state_of(self._scheduler)


TOTALS: Mapping[type, tuple[str, ...]] = {
    Vitals: (
        "energy_joules",
        "throttle_seconds",
        "nvlink_transmit_bytes_total",
        "nvlink_receive_bytes_total",
    ),
    Board: (
        "pcie_replays_total",
        "pcie_errors_total",
        "pcie_link_recoveries_total",
        "nvlink_errors_total",
    ),
    Health: ("ecc_errors_total",),
}


class Rebase:
    """Adds to each total its growth in the passes before.

    Within a pass a total moves as it was recorded, also down where the driver started over.
    """

    def __init__(self) -> None:
        self._offsets: dict[tuple[Any, ...], Any] = {}
        """Of the totals seen in this pass."""
        self._last: dict[tuple[Any, ...], Any] = {}

    def start_over(self) -> None:
        """Go on from the last values: the next ones are the first of a pass."""
        self._offsets.clear()

    def count(self, *path: Any, value: int, start: int = 0) -> int:
        """Return a count moved that was `start` when the recording began."""
        offset = self._offsets.setdefault(path, self._last.get(path, start) - start)
        moved: int = value + offset
        self._last[path] = moved
        return moved

    def moved(self, uuid: str, part: Part) -> Part:
        """Return `part` of this GPU's reading with its totals moved."""
        values = {
            name: self._moved((uuid, name), value)
            for name in TOTALS[type(part)]
            if (value := getattr(part, name)) is not None
        }
        return replace(part, **values)

    def _moved(self, path: tuple[str, ...], value: Any) -> Any:
        """Return a total of the driver, or a table of them: it goes on with its first value."""
        if isinstance(value, Mapping):
            return {name: self._moved((*path, name), item) for name, item in value.items()}
        return self.count(*path, value=value, start=value)


class Replay(AlwaysOn):
    """Hands over a recording's ticks, at most one a round, when they are due on `clock`.

    With a `FastClock` and ticks at the recording's own interval, a recording plays `speed` times
    as fast and every snapshot is the same as the live one.
    """

    name = NAME
    counter_states = NO_COUNTER_STATES
    jobs = None
    """A recording has no reports of training jobs."""

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
        self._shown: dict[tuple[object, str], tuple[object, Any]] = {}
        """By GPU or source, and part of its reading: the last one as recorded and as shown."""
        self._reports: tuple[SlotReport, ...] = ()
        self._xids: dict[str, dict[int, XidRecord]] = {}
        self._failures: dict[int, dict[str, int]] = {}
        """Failed reads by GPU and source, as shown."""
        self._states: dict[Scheduler, SourceState] = {}
        """Of the workload sources, as shown with this tick at the times below."""
        self.workload_reports: Mapping[Scheduler, WorkloadReport] = {}
        """The reports of the workload sources at this tick."""
        self._shown_at = 0.0
        self._shown_unix = 0.0
        self.workloads = tuple(ReplayedWorkloads(name, self) for name in get_args(Scheduler))
        """The workload sources of the recorded node."""
        self.failed_initialisations = 0
        """How often the recorded node's library could not be initialised."""

    @property
    def problem(self) -> str | None:
        """Why the recording has ended, else the problem that the recorded node had."""
        return self._ended or self._tick.problem

    def xids(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids recorded so far, by UUID."""
        return self._xids

    def devices(self) -> Mapping[str, int]:
        """Return how many GPUs the recorded node counted, by who counted."""
        return self._tick.devices

    def reports(self) -> tuple[SlotReport, ...]:
        """Return the reports on every GPU at this tick."""
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
        self._show(tick, now - self._origin)

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
                path = self._recording.path  # its directory is shown in the log only
                message = str(damage).replace(str(path), path.name)
                self._end_pass(f"the recording has ended: {message}")
            else:
                self._played = True
                return tick
        return None

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
        # The reports of the last pass have another offset.
        self._shown.clear()

    def _show(self, tick: Tick, seconds: float) -> None:
        count = self._rebase.count
        self._tick = tick
        self._shown_at = self._clock.monotonic()
        self._shown_unix = self._clock.time()
        self._reports = tuple(self._report(report) for report in tick.gpus)
        started = self._recording.header.started_unix_seconds
        for uuid, records in tick.xids.items():
            shown = dict(self._xids.get(uuid, {}))
            for code, record in records.items():
                age = seconds - (record.last_timestamp_seconds - started)
                number = count("xid", uuid, code, value=record.count)
                shown[code] = XidRecord(number, self._shown_unix - max(age, 0.0) / self._speed)
            self._xids = {**self._xids, uuid: shown}
        self._states = {
            name: replace(state, failures_total=count(name, value=state.failures_total))
            for name, state in tick.workload_sources.items()
        }
        self.workload_reports = {
            name: self._once(name, "workloads", report, lambda found: found)
            for name, report in (tick.workloads or {}).items()
        }
        self.failed_initialisations = count(value=tick.failed_initialisations)

    def state_of(self, source: Scheduler) -> SourceState | None:
        """Return the state of a workload source now."""
        state = self._states.get(source)
        if state is None:
            return None
        since = max(self._clock.monotonic() - self._shown_at, 0.0)
        age = None if state.age_seconds is None else state.age_seconds + since
        return replace(state, up=state.up and self._ended is None, age_seconds=age)

    def _report(self, report: SlotReport) -> SlotReport:
        index, device, reading = report.index, report.device, report.reading
        if device is not None:
            device = self._once(index, "device", device, lambda found: replace(found, source=NAME))
        if reading is not None:
            owner = device or reading.device
            reading = self._once(index, "reading", reading, lambda found: self._moved(found, owner))
        failures = {
            source: self._rebase.count("failures", index, source, value=count)
            for source, count in self._renamed(report.failures).items()
        }
        failures = self._failures[index] = self._failures.get(index, {}) | failures
        return SlotReport(index, device, reading, report.problem, failures)

    def _once(
        self, of: object, part: str, recorded: Value, show: Callable[[Value], Value]
    ) -> Value:
        """Return a part as shown; the same object while what was recorded stays the same.

        Later stages take that for unchanged values.
        """
        before = self._shown.get((of, part))
        if before is None or before[0] != recorded:
            before = self._shown[of, part] = recorded, show(recorded)
        shown: Value = before[1]
        return shown

    def _moved(self, reading: Reading, device: Device) -> Reading:
        """Return a recorded reading as if it was taken now."""

        def rebased(part: Part) -> Part:
            return self._rebase.moved(device.uuid, part) if self._loop else part

        health = reading.health
        monotonic = (self._origin or 0.0) + reading.monotonic_seconds
        age = max(self._shown_at - monotonic, 0.0)
        return replace(
            reading,
            device=device,
            timestamp_seconds=self._shown_unix - age / self._speed,
            monotonic_seconds=monotonic,
            vitals=rebased(reading.vitals),
            board=self._once(device.index, "board", reading.board, rebased),
            health=health and self._once(device.index, "health", health, rebased),
            read_seconds=self._renamed(reading.read_seconds),
        )

    def _renamed(self, by_source: Mapping[str, Value]) -> dict[str, Value]:
        """Return the same, under this source's name in place of the recorded one's."""
        recorded = self._recording.header.source
        return {NAME if name == recorded else name: item for name, item in by_source.items()}
