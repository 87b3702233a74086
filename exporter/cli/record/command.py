# SPDX-License-Identifier: Apache-2.0
"""Runs ``record``: which file is written, and for how long."""

from __future__ import annotations

import threading
from pathlib import Path

from exporter.cli.command import STOPPED, Invocation, on_stop
from exporter.cli.config import Parser, shown
from exporter.cli.config.coerce import Unexpected, duration
from exporter.clock import SystemClock
from exporter.errors import ConfigError

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
    length, path = length_seconds(given.duration), Path(given.file)
    check_path(path, force=given.force)

    from exporter.cli.readers import choose_readers, choose_workloads
    from exporter.cli.record.loop import record
    from exporter.publisher.redact import WithoutSerials, without_users
    from exporter.sources.recording import WorkloadRecorder
    from exporter.specs import load_specs

    specs, clock = load_specs(settings.specs), SystemClock()
    readers = choose_readers(settings, specs, clock)
    workloads = choose_workloads(settings, readers, clock)
    interval = settings.poll_interval_seconds
    stopped = threading.Event()
    on_stop(stopped.set)
    redact = None if settings.identity_serial else WithoutSerials().report
    recorder = WorkloadRecorder(workloads, None if settings.process_owner else without_users)
    for source in workloads:
        source.start()
    try:
        summary = record(
            *(readers, specs, clock, path, interval, length),
            force=given.force,
            redact=redact,
            workloads=recorder,
            stopped=stopped,
        )
    finally:
        for source in workloads:
            source.stop()
    print(summary)
    return STOPPED


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
