# SPDX-License-Identifier: Apache-2.0
"""A recording: its header and one line for each round, read as a stream as far as it is whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from exporter.errors import ConfigError
from exporter.model.reading import SlotReport, XidRecord
from exporter.model.snapshot import SourceState
from exporter.model.workload import Scheduler, WorkloadReport
from exporter.sources.recording.bounds import MOST_ITEMS_OF, MemoryBudget, check_line, weight
from exporter.sources.recording.files import Damage, read_lines
from exporter.sources.recording.lines import STRICT, InvalidLine, decode, encode

FORMAT = "roofline-exporter-recording"
VERSION = 3
LONGEST_SECONDS = 1e9
DIGITS = 9
"""Times are rounded to nanoseconds."""


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    """One GPU that answered when the recording began."""

    index: int
    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class Header:
    """The properties of the whole recording."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    exporter: str
    """The version of the exporter that recorded."""
    source: str
    """Where its readings came from: nvml or simulate."""
    interval_seconds: Annotated[float, Field(ge=0.01, le=3600)]
    """Between two ticks."""
    started: str
    """When it began, as an ISO 8601 time with its offset from UTC."""
    driver: str | None = None
    """The version of the NVIDIA driver."""
    devices: tuple[RecordedDevice, ...] = ()
    specs: Mapping[str, str] = field(default_factory=dict)
    """By UUID: the row of the spec file whose peaks held, or ``derived``."""

    @property
    def started_unix_seconds(self) -> float:
        """When it began, as Unix time."""
        return datetime.fromisoformat(self.started).timestamp()


def iso_time(unix_seconds: float) -> str:
    """Return a time in UTC as a header has it."""
    return datetime.fromtimestamp(unix_seconds, timezone.utc).isoformat()


def header_line(header: Header) -> bytes:
    """Return the first line of a recording."""
    plain = {"format": FORMAT, "version": VERSION, **json.loads(encode(header))}
    return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def read_header(line: bytes) -> Header:
    """Return the header in the first line of a recording.

    Raises:
        InvalidLine: it is not the header of a recording that this version can play.
    """
    check_line(line)
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidLine("", "a line of JSON") from None
    if not isinstance(plain, dict) or plain.pop("format", None) != FORMAT:
        raise InvalidLine("format", f'"{FORMAT}"')
    if plain.pop("version", None) != VERSION:
        raise InvalidLine("version", f"{VERSION}, which this exporter can play")
    header = decode(Header, json.dumps(plain).encode())
    weight(header, "header")
    try:
        has_offset = datetime.fromisoformat(header.started).utcoffset() is not None
    except ValueError:
        has_offset = False
    if not has_offset:
        raise InvalidLine("started", "a time such as 2026-01-31T12:00:00+00:00")
    return header


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
    """By workload source: its last report. None if no report changed since the tick before."""
    workload_sources: Mapping[Scheduler, SourceState] = field(default_factory=dict)
    """The state of each workload source in use."""


def recorded(report: SlotReport, started_monotonic_seconds: float) -> SlotReport:
    """Return a report as it is written: its times count from the start of the recording.

    The device is left out beside a reading, which has it too.
    """
    reading = report.reading
    if reading is None:
        return report
    seconds = round(reading.monotonic_seconds - started_monotonic_seconds, DIGITS)
    reading = replace(reading, timestamp_seconds=seconds, monotonic_seconds=seconds)
    return replace(report, device=None, reading=reading)


def read_ticks(lines: Iterable[bytes]) -> Iterator[Tick]:
    """Yield the ticks in the lines after the header.

    Raises:
        InvalidLine: a line is not a tick, or exceeds a limit of `bounds`.
    """
    workloads: Mapping[Scheduler, WorkloadReport] | None = None
    last_seconds = 0.0
    memory = MemoryBudget()
    for line in lines:
        check_line(line)
        tick = decode(Tick, line)
        memory.add(tick.gpus, xids=tick.xids, devices=tick.devices)
        for name in ("problem", "workloads", "workload_sources"):
            weight(getattr(tick, name), name)
        if tick.seconds < last_seconds:
            raise InvalidLine("seconds", "a time after that of the line before")
        last_seconds = tick.seconds
        workloads = workloads if tick.workloads is None else tick.workloads
        yield replace(tick, gpus=tuple(map(_with_device, tick.gpus)), workloads=workloads)


def _with_device(report: SlotReport) -> SlotReport:
    reading = report.reading
    if reading is None:
        return report
    if abs(reading.monotonic_seconds) > LONGEST_SECONDS:
        raise InvalidLine("gpus", f"readings within {LONGEST_SECONDS:g} s of the start")
    return replace(report, device=reading.device)


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
        number = 1
        try:
            lines = read_lines(self.path)
            next(lines, None)  # the header
            for tick in read_ticks(lines):
                number += 1
                yield tick
        except OSError as error:
            raise Damage(f"{self.path}: cannot be read: {error.strerror or error}") from error
        except (Damage, InvalidLine) as error:
            raise Damage(f"{self.path}:{number + 1}: {error}") from error
