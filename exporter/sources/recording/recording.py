# SPDX-License-Identifier: Apache-2.0
"""A recording: its header and one line for each round, read as a stream as far as it is whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from exporter.errors import ConfigError
from exporter.model.reading import Reading, SlotReport, XidRecord
from exporter.model.snapshot import SourceState
from exporter.model.workload import Scheduler, WorkloadReport
from exporter.sources.recording.bounds import MOST_ITEMS_OF, Kept, check_line, weight
from exporter.sources.recording.files import Damage, read_lines
from exporter.sources.recording.header import Header, read_header
from exporter.sources.recording.lines import STRICT, InvalidLine, decode

LONGEST_SECONDS = 1e9
DIGITS = 9
"""Times are rounded to nanoseconds."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The state of all sources after one round."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    seconds: Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
    """Since the recording began."""
    gpus: Annotated[tuple[SlotReport, ...], Field(max_length=MOST_ITEMS_OF["gpus"])] = ()
    """Readings are stamped in seconds since the recording began, on both of their clocks."""
    xids: Mapping[str, Mapping[int, XidRecord]] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    problem: str | None = None
    failed_initialisations: int = 0
    workloads: Mapping[Scheduler, WorkloadReport] | None = None
    """By source of workloads: its last report. None where all are as in the tick before."""
    workload_sources: Mapping[Scheduler, SourceState] = field(default_factory=dict)
    """The state of those in use."""


def recorded(report: SlotReport, started_monotonic_seconds: float) -> SlotReport:
    """Return a report as it is written: its times count from the start of the recording.

    The device stands in the reading where there is one.
    """
    reading = report.reading
    if reading is None:
        return report
    seconds = round(reading.monotonic_seconds - started_monotonic_seconds, DIGITS)
    reading = replace(reading, timestamp_seconds=seconds, monotonic_seconds=seconds)
    return replace(report, device=None, reading=reading)


class TickReader:
    """Reads the lines of a recording, in their order."""

    def __init__(self) -> None:
        self._workloads: Mapping[Scheduler, WorkloadReport] | None = None
        """The last reports of the sources of workloads; None before the first."""
        self._seconds = 0.0
        self._readings: dict[int, Reading] = {}
        """The last ones, by the report's index."""
        self._kept = Kept()

    def read(self, line: bytes) -> Tick:
        """Return the tick of the next line.

        A reading that did not change is the same object as in the tick before; so are device,
        board, health, and the report of a source of workloads.

        Raises:
            InvalidLine: the line does not stand for a tick, or a limit of `bounds` is reached.
        """
        check_line(line)
        tick = decode(Tick, line)
        self._count(tick)
        if tick.seconds < self._seconds:
            raise InvalidLine("seconds", "a time after that of the line before")
        self._seconds = tick.seconds
        gpus = tuple([self._shared(report) for report in tick.gpus])
        self._readings = _readings(gpus)
        self._take(tick.workloads)
        return replace(tick, gpus=gpus, workloads=self._workloads)

    def _take(self, said: Mapping[Scheduler, WorkloadReport] | None) -> None:
        """Keep the reports of the sources of workloads."""
        if said is not None:
            before = self._workloads or {}
            self._workloads = {
                name: before[name] if before.get(name) == report else report
                for name, report in said.items()
            }

    def _count(self, tick: Tick) -> None:
        for report in tick.gpus:
            self._kept.add(report)
        self._kept.add_table("xids", tick.xids)
        self._kept.add_table("devices", tick.devices)
        weight(tick.problem, "problem")
        self._kept.add_workloads(tick.workloads or {})
        weight(tick.workload_sources, "workload_sources")

    def _shared(self, report: SlotReport) -> SlotReport:
        """Return the report with the objects of the last reading, where they are equal."""
        reading, before = report.reading, self._readings.get(report.index)
        if reading is None:
            return report
        if abs(reading.monotonic_seconds) > LONGEST_SECONDS:
            raise InvalidLine("gpus", f"readings within {LONGEST_SECONDS:g} s of the start")
        if before is not None:
            reading = before if reading == before else _with_parts_of(reading, before)
        return replace(report, device=reading.device, reading=reading)


def _readings(gpus: Sequence[SlotReport]) -> dict[int, Reading]:
    return {report.index: report.reading for report in gpus if report.reading is not None}


def _with_parts_of(reading: Reading, before: Reading) -> Reading:
    return replace(
        reading,
        device=before.device if reading.device == before.device else reading.device,
        board=before.board if reading.board == before.board else reading.board,
        health=before.health if reading.health == before.health else reading.health,
    )


class Recording:
    """A recording in a file."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            ConfigError: there is no such file, or it does not begin as a recording.
        """
        self.path = path
        try:
            self.header: Header = read_header(next(read_lines(path), b""))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (Damage, InvalidLine) as error:
            raise ConfigError(f"{path}:1: {error}") from error

    def ticks(self) -> Iterator[Tick]:
        """Yield the ticks, in order.

        Raises:
            Damage: the rest cannot be played; the message names file and line.
        """
        reader = TickReader()
        number = 1
        try:
            for number, line in enumerate(read_lines(self.path), 1):
                if number > 1:
                    yield reader.read(line)
        except OSError as error:
            raise Damage(f"{self.path}: cannot be read: {error.strerror or error}") from error
        except Damage as error:
            raise Damage(f"{self.path}:{number + 1}: {error}") from error
        except InvalidLine as error:
            raise Damage(f"{self.path}:{number}: {error}") from error
