# SPDX-License-Identifier: Apache-2.0
"""Writes the reports of the readers and workload sources to a recording, one line per round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from exporter import __version__
from exporter.clock import Clock
from exporter.model.readers import Readers, WorkloadSource
from exporter.model.reading import SlotReport
from exporter.model.snapshot import SourceState
from exporter.model.workload import Scheduler, WorkloadReport
from exporter.sources.recording.files import LineFile
from exporter.sources.recording.lines import encode
from exporter.sources.recording.recording import (
    DIGITS,
    Header,
    RecordedDevice,
    Tick,
    header_line,
    iso_time,
    recorded,
)
from exporter.specs import SpecBook

FLUSH_SECONDS = 1.0
"""Between two flushes: a machine that fails loses at most that; shorter would compress worse."""
AGE_DIGITS = 3
"""Ages are rounded to milliseconds."""


class WorkloadRecorder:
    """The changes of the workload sources to record in each round."""

    def __init__(
        self,
        sources: Sequence[WorkloadSource],
        redact: Callable[[WorkloadReport], WorkloadReport] | None = None,
    ) -> None:
        """Take the sources; `redact` returns the part of a report to record."""
        names: Mapping[str, Scheduler] = {each: each for each in get_args(Scheduler)}
        self._sources = {names[each.name]: each for each in sources if each.name in names}
        self._redact = redact
        self._last: dict[Scheduler, WorkloadReport] = {}
        """The last reports, not redacted."""

    def changed_reports(self) -> Mapping[Scheduler, WorkloadReport] | None:
        """Return the last report of every source; None if none has changed since the last call."""
        reports = {
            name: report
            for name, source in self._sources.items()
            if (report := source.report()) is not None
        }
        if reports == self._last:
            return None
        self._last = reports
        redact = self._redact
        return reports if redact is None else {name: redact(each) for name, each in reports.items()}

    def states(self) -> Mapping[Scheduler, SourceState]:
        """Return the state of each source in use, its times rounded."""
        return {
            name: replace(
                state,
                age_seconds=_rounded(state.age_seconds),
                read_seconds=_rounded(state.read_seconds),
            )
            for name, source in self._sources.items()
            if (state := source.state) is not None
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, AGE_DIGITS)


class Recorder:
    """Writes one round after the other to a recording; OSError where a line cannot be written."""

    def __init__(
        self,
        file: LineFile,
        header: Header,
        clock: Clock,
        started: float,
        redact: Callable[[SlotReport], SlotReport] | None = None,
        workloads: WorkloadRecorder | None = None,
    ) -> None:
        """Write the header; `started` is the monotonic time at which the recording begins.

        `redact` returns the part of a report to record; without it, all is recorded.

        Raises:
            OSError: nothing could be written.
        """
        self.ticks = 0
        self.gpus = len(header.devices)
        self.seconds = 0.0
        """From the first round to the last."""
        self._file = file
        self._clock = clock
        self._started = started
        self._redact = redact
        self._workloads = workloads or WorkloadRecorder(())
        self._flushed_at = started
        file.write(header_line(header))
        file.flush()

    def take(self, readers: Readers) -> None:
        """Write the readers' present reports.

        Raises:
            OSError: the lines since the last flush could not be written.
        """
        now = self._clock.monotonic()
        reports = readers.reports()
        if self._redact is not None:
            reports = [self._redact(report) for report in reports]
        tick = Tick(
            round(now - self._started, DIGITS),
            tuple([recorded(report, self._started) for report in reports]),
            readers.xids(),
            readers.devices(),
            readers.problem,
            readers.failed_initialisations,
            self._workloads.changed_reports(),
            self._workloads.states(),
        )
        self._file.write(encode(tick))
        self.ticks += 1
        self.seconds = now - self._started
        self.gpus = max(self.gpus, sum(report.device is not None for report in reports))
        if now - self._flushed_at >= FLUSH_SECONDS:
            self._file.flush()
            self._flushed_at = now

    def end(self) -> int:
        """End the file; return its size in bytes.

        Raises:
            OSError: the last lines could not be written.
        """
        return self._file.close()

    def summary(self) -> str:
        """Return how much was recorded, in words."""
        gpus = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return f"{self.ticks} ticks of {gpus} in {self.seconds:.0f} s"


def header_of(readers: Readers, specs: SpecBook, interval_seconds: float, unix: float) -> Header:
    """Return the header for a recording that begins now, with the GPUs that answered."""
    devices = [report.device for report in readers.reports() if report.device is not None]
    drivers = [device.driver_version for device in devices if device.driver_version is not None]
    ceilings = {device.uuid: specs.ceilings(device, None) for device in devices}
    return Header(
        exporter=__version__,
        source=readers.name,
        interval_seconds=interval_seconds,
        started=iso_time(unix),
        driver=drivers[0] if drivers else None,
        devices=tuple(RecordedDevice(d.index, d.uuid, d.name) for d in devices),
        specs={uuid: found.spec for uuid, found in ceilings.items() if found is not None},
    )
