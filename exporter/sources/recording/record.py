# SPDX-License-Identifier: Apache-2.0
"""Writes the reports of the readers to a recording, one line for each round."""

from __future__ import annotations

from collections.abc import Callable

from exporter.clock import Clock
from exporter.model.readers import Readers
from exporter.model.reading import SlotReport
from exporter.sources.recording.files import LineFile
from exporter.sources.recording.header import Header, RecordedDevice, header_line, iso_time
from exporter.sources.recording.lines import encode
from exporter.sources.recording.recording import DIGITS, Tick, recorded
from exporter.sources.recording.work import WorkRecorder
from exporter.specs import SpecBook
from exporter.version import version

FLUSH_SECONDS = 1.0
"""Between two flushes: a machine that fails loses at most that; shorter would compress worse."""


class Recorder:
    """Writes one round after the other to a recording."""

    def __init__(
        self,
        file: LineFile,
        header: Header,
        clock: Clock,
        started: float,
        kept: Callable[[SlotReport], SlotReport] | None = None,
        work: WorkRecorder | None = None,
    ) -> None:
        """Write the header; `started` is the monotonic time at which the recording begins.

        `kept` returns the part of a report that is written; without it all is. `work` has the
        sources of workloads.

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
        self._kept = kept
        self._work = WorkRecorder(()) if work is None else work
        self._flushed_at = started
        file.write(header_line(header))
        file.flush()

    def take(self, readers: Readers) -> None:
        """Write what the readers report now.

        Raises:
            OSError: the lines since the last flush could not be written.
        """
        now = self._clock.monotonic()
        reports = readers.reports()
        if self._kept is not None:
            reports = [self._kept(report) for report in reports]
        tick = Tick(
            round(now - self._started, DIGITS),
            tuple([recorded(report, self._started) for report in reports]),
            readers.xids(),
            readers.devices(),
            readers.problem,
            readers.failed_initialisations,
            self._work.said(),
            self._work.states(),
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
        exporter=version(),
        source=readers.name,
        interval_seconds=interval_seconds,
        started=iso_time(unix),
        driver=drivers[0] if drivers else None,
        devices=tuple(RecordedDevice(d.index, d.uuid, d.name) for d in devices),
        specs={uuid: found.spec for uuid, found in ceilings.items() if found is not None},
    )
