# SPDX-License-Identifier: Apache-2.0
"""Writes what the sources hand over to a file, tick by tick, until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from exporter.cli.readers import FIRST_READING_SECONDS, NodeReaders, any_pending
from exporter.clock import Clock, next_due_seconds
from exporter.errors import ConfigError, ExporterError
from exporter.model.readers import Readers
from exporter.model.reading import SlotReport
from exporter.sources.recording import LineFile, Recorder, WorkloadRecorder, header_of
from exporter.specs import SpecBook


def record(
    readers: NodeReaders,
    specs: SpecBook,
    clock: Clock,
    path: Path,
    interval_seconds: float,
    duration_seconds: float | None,
    *,
    force: bool = False,
    redact: Callable[[SlotReport], SlotReport] | None = None,
    workloads: WorkloadRecorder | None = None,
    stopped: threading.Event | None = None,
    wait: Callable[[float], object] | None = None,
) -> str:
    """Record until stopped or for `duration_seconds`; return one line on what was written.

    `redact` returns the part of a report to record; without it, all is recorded. The sources of
    `workloads` are started.

    Raises:
        ConfigError: the file may not be written.
        ExporterError: no GPU answers, or the disk is full; the file is whole up to there.
    """
    stopped = stopped or threading.Event()
    wait = wait or stopped.wait
    readers.start()
    try:
        problem = _await_readings(readers, clock, interval_seconds, stopped, wait)
        if problem is not None:
            raise ExporterError(f"nothing was recorded: {problem}")
        started, unix = clock.monotonic(), clock.time()
        try:
            file = LineFile(path, overwrite=force)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
        recorder: Recorder | None = None
        try:
            header = header_of(readers, specs, interval_seconds, unix)
            recorder = Recorder(file, header, clock, started, redact, workloads)
            _run(recorder, readers, clock, interval_seconds, duration_seconds, stopped, wait)
            size = recorder.end()
        except OSError as error:
            so_far = f"about {recorder.summary()}" if recorder is not None else "nothing"
            raise ExporterError(
                f"{path}: {error.strerror or error}; "
                f"the recording ends with the last line that was written ({so_far})"
            ) from error
    finally:
        readers.stop()
    return f"recorded {recorder.summary()} to {path} ({size / 1e6:.2f} MB)"


def _await_readings(
    readers: Readers,
    clock: Clock,
    interval_seconds: float,
    stopped: threading.Event,
    wait: Callable[[float], object],
) -> str | None:
    """Wait until every GPU was read or has failed; return why none can be read, else None."""
    deadline = clock.monotonic() + FIRST_READING_SECONDS
    while not stopped.is_set():
        readers.round(interval_seconds / 2)
        reports = readers.reports()
        answered = any(report.reading is not None for report in reports)
        if answered and not any_pending(readers):
            return None
        if clock.monotonic() >= deadline or readers.problem is not None:
            problems = [report.problem for report in reports if report.problem is not None]
            reason = readers.problem or (problems[0] if problems else "no GPU answers")
            return None if answered else reason
        wait(min(interval_seconds, 0.05))
    return "stopped before a GPU answered"


def _run(
    recorder: Recorder,
    readers: Readers,
    clock: Clock,
    interval_seconds: float,
    duration_seconds: float | None,
    stopped: threading.Event,
    wait: Callable[[float], object],
) -> None:
    due = started = clock.monotonic()
    while not stopped.is_set():
        readers.round(interval_seconds / 2)
        recorder.take(readers)
        now = clock.monotonic()
        due = next_due_seconds(due, interval_seconds, now)
        if duration_seconds is not None and due - started >= duration_seconds:
            wait(max(started + duration_seconds - now, 0.0))
            return
        wait(due - now)
