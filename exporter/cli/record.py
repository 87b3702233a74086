# SPDX-License-Identifier: Apache-2.0
"""The command ``record``: writes what the sources hand over to a file until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from exporter.cli.command import STOPPED, Invocation
from exporter.cli.config import Parser, shown
from exporter.cli.config.values import Unexpected, duration
from exporter.cli.nodes import NodeReaders, choose_readers
from exporter.cli.signals import on_stop
from exporter.clock import Clock, SystemClock
from exporter.errors import ConfigError, ExporterError
from exporter.model.readers import Readers
from exporter.sources.recording import LineFile, Recorder, header_of
from exporter.specs import SpecBook, load_specs

FIRST_READING_SECONDS = 10.0
LENGTH = duration("100ms", "365d")


def length_seconds(text: str | None) -> float | None:
    """Return what ``--duration`` says, in seconds; None where it was not given.

    Raises:
        ConfigError: it is no duration.
    """
    if text is None:
        return None
    try:
        return LENGTH.parse(text)
    except Unexpected:
        raise ConfigError(f"--duration: expected {LENGTH.expected}, got {shown(text)}") from None


def check_path(path: Path, *, force: bool) -> None:
    """Refuse a file that exists, unless forced, or that cannot be made.

    Raises:
        ConfigError: it is refused.
    """
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(f"{path}: expected the path of a file in a directory that exists")
    if not force and path.exists():
        raise ConfigError(f"{path}: exists already; --force overwrites it")


def record(
    readers: NodeReaders,
    specs: SpecBook,
    clock: Clock,
    path: Path,
    interval_seconds: float,
    duration_seconds: float | None,
    *,
    force: bool = False,
    stopped: threading.Event | None = None,
    wait: Callable[[float], object] | None = None,
) -> str:
    """Record until stopped or for `duration_seconds`; return one line on what was written.

    Raises:
        ConfigError: the file may not be written.
        ExporterError: no GPU answers, or the disk is full; the file is whole up to there.
    """
    check_path(path, force=force)
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
            recorder = Recorder(file, header, clock, started)
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
        awaited = any(report.reading is None and report.problem is None for report in reports)
        if answered and not awaited:
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
        due += interval_seconds
        now = clock.monotonic()
        if due <= now:  # late: skip what was missed, keep the phase
            due += interval_seconds * ((now - due) // interval_seconds + 1)
        if duration_seconds is not None and due - started >= duration_seconds:
            wait(max(started + duration_seconds - now, 0.0))
            return
        wait(due - now)


def add_options(parser: Parser) -> None:
    """Add the options of the command."""
    parser.own.add_argument("file", nargs="?", metavar="FILE", help="Compressed if it ends in .gz.")
    parser.own.add_argument(
        "--duration",
        metavar="DURATION",
        help="Stop after it, such as 60s. (default: on SIGINT or SIGTERM)",
    )
    parser.own.add_argument(
        "--force", action="store_true", help="Overwrite FILE where it exists already."
    )


def run(invocation: Invocation) -> int:
    """Run the command; return the exit code."""
    settings, given = invocation.start(), invocation.options
    if given.file is None:
        raise ConfigError("record: expected a FILE, such as support.jsonl.gz")
    if settings.replay is not None:
        raise ConfigError("--replay: a recording cannot be recorded again, copy the file")
    length, path = length_seconds(given.duration), Path(given.file)
    check_path(path, force=given.force)
    specs, clock = load_specs(settings.specs), SystemClock()
    readers = choose_readers(settings, specs, clock)
    interval = settings.poll_interval_seconds
    stopped = threading.Event()
    on_stop(stopped.set)
    print(record(readers, specs, clock, path, interval, length, force=given.force, stopped=stopped))
    return STOPPED
