# SPDX-License-Identifier: Apache-2.0
"""``record``: writes all readings of this node to a file, to be played with ``--replay``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.cli.command import STOPPED, Invocation, on_stop
from exporter.cli.config import Parser
from exporter.cli.config.coerce import duration, option
from exporter.clock import Clock, SystemClock, next_due_seconds
from exporter.errors import ConfigError, ExporterError

if TYPE_CHECKING:
    from exporter.cli.readers import NodeReaders
    from exporter.model.reading import SlotReport
    from exporter.sources.recording import Recorder, WorkloadRecorder
    from exporter.specs import SpecBook

LENGTH = duration("100ms", "365d")


def add_options(parser: Parser) -> None:
    """Add the options of the command."""
    parser.own.add_argument(
        "file", nargs="?", metavar="FILE", help="The recording; compressed if its name ends in .gz."
    )
    parser.own.add_argument(
        "--duration",
        metavar="DURATION",
        help="Stop after this time, such as 60s. (default: on SIGINT or SIGTERM)",
    )
    parser.own.add_argument("--force", action="store_true", help="Overwrite FILE if it exists.")


def run(invocation: Invocation) -> int:
    """Run the command; return the exit code."""
    settings, given = invocation.start(), invocation.options
    if given.file is None:
        raise ConfigError("record: expected a FILE, such as support.jsonl.gz")
    if settings.replay is not None:
        raise ConfigError("--replay: a recording cannot be recorded again, copy the file")
    length = None if given.duration is None else option("--duration", LENGTH, given.duration)
    path = Path(given.file)
    check_path(path, force=given.force)

    from exporter.cli.readers import choose_readers, choose_workloads
    from exporter.publisher.redact import WithoutSerials, without_users
    from exporter.sources.recording import WorkloadRecorder
    from exporter.specs import load_specs

    specs, clock = load_specs(settings.specs), SystemClock()
    readers = choose_readers(settings, specs, clock)
    workloads = choose_workloads(settings, readers, clock)
    stopped = threading.Event()
    on_stop(stopped.set)
    redact = None if settings.identity_serial else WithoutSerials().report
    recorder = WorkloadRecorder(workloads, None if settings.process_owner else without_users)
    for source in workloads:
        source.start()
    try:
        rounds = RecordedRounds(
            readers, clock, settings.poll_interval_seconds, stopped, stopped.wait
        )
        summary = record(
            *(rounds, specs, path, length), force=given.force, redact=redact, workloads=recorder
        )
    finally:
        for source in workloads:
            source.stop()
    print(summary)
    return STOPPED


def check_path(path: Path, *, force: bool) -> None:
    """Raise ConfigError for a file that exists, unless forced, or that cannot be made."""
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(f"{path}: expected the path of a file in a directory that exists")
    if not force and path.exists():
        raise ConfigError(f"{path}: exists already; --force overwrites it")


@dataclass(frozen=True, slots=True)
class RecordedRounds:
    """Readings at an interval, until somebody stops them."""

    readers: NodeReaders
    clock: Clock
    interval_seconds: float
    stopped: threading.Event
    wait: Callable[[float], object]

    def first(self) -> str | None:
        """Read until every GPU was read or has failed; return why none can be read, else None."""
        from exporter.cli.readers import FIRST_READING_SECONDS, any_pending

        readers, deadline = self.readers, self.clock.monotonic() + FIRST_READING_SECONDS
        while not self.stopped.is_set():
            readers.round(self.interval_seconds / 2)
            reports = readers.reports()
            answered = any(report.reading is not None for report in reports)
            if answered and not any_pending(readers):
                return None
            if self.clock.monotonic() >= deadline or readers.problem is not None:
                found = (readers.problem, *(report.problem for report in reports))
                return None if answered else next(filter(None, found), "no GPU answers")
            self.wait(min(self.interval_seconds, 0.05))
        return "stopped before a GPU answered"

    def record(self, recorder: Recorder, duration_seconds: float | None) -> None:
        """Record each round, for so long if that is given."""
        due = started = self.clock.monotonic()
        while not self.stopped.is_set():
            self.readers.round(self.interval_seconds / 2)
            recorder.take(self.readers)
            now = self.clock.monotonic()
            due = next_due_seconds(due, self.interval_seconds, now)
            if duration_seconds is not None and due - started >= duration_seconds:
                self.wait(max(started + duration_seconds - now, 0.0))
                return
            self.wait(due - now)


def record(
    rounds: RecordedRounds,
    specs: SpecBook,
    path: Path,
    duration_seconds: float | None,
    *,
    force: bool = False,
    redact: Callable[[SlotReport], SlotReport] | None = None,
    workloads: WorkloadRecorder | None = None,
) -> str:
    """Record until stopped or for `duration_seconds`; return one line on what was written.

    `redact` returns the part of a report to record; without it, all is recorded. The sources of
    `workloads` are started.

    Raises ConfigError if the file may not be written, ExporterError if no GPU answers or the disk
    is full; the file is whole up to there.
    """
    from exporter.sources.recording import LineFile, Recorder, header_of

    readers, clock = rounds.readers, rounds.clock
    readers.start()
    try:
        problem = rounds.first()
        if problem is not None:
            raise ExporterError(f"nothing was recorded: {problem}")
        started, unix = clock.monotonic(), clock.time()
        try:
            file = LineFile(path, overwrite=force)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
        recorder: Recorder | None = None
        try:
            header = header_of(readers, specs, rounds.interval_seconds, unix)
            recorder = Recorder(file, header, clock, started, redact, workloads)
            rounds.record(recorder, duration_seconds)
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
