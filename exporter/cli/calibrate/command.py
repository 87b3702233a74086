# SPDX-License-Identifier: Apache-2.0
"""Runs ``calibrate``: which GPU, with which Python, and where the result goes."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from exporter.cli.command import STOPPED, Invocation
from exporter.cli.config import Parser, Settings, shown
from exporter.cli.config.coerce import Unexpected, duration
from exporter.cli.record.command import check_path
from exporter.errors import ConfigError, ExporterError
from exporter.sources.nvml import NVML

LENGTH = duration("5s", "10m")
ROUND_SECONDS = 1.0


def add_options(parser: Parser) -> None:
    """Add the options of the command."""
    parser.own.add_argument(
        "--gpu", metavar="N", help="The index of the GPU. (default: the only one)"
    )
    parser.own.add_argument(
        "--output", metavar="FILE", help="The spec file to write. (default: standard output)"
    )
    parser.own.add_argument("--force", action="store_true", help="Overwrite FILE if it exists.")
    parser.own.add_argument(
        "--python",
        metavar="PATH",
        help="A Python that has torch. (default: this one, else python3 on the PATH)",
    )
    parser.own.add_argument(
        "--measure",
        default="15s",
        metavar="DURATION",
        help="How long each of eleven loads is measured. (default: 15s)",
    )


def run(invocation: Invocation) -> int:
    """Calibrate one GPU; return the exit code.

    Raises:
        ConfigError: an option or a setting is wrong.
        ExporterError: GPU or torch are missing, or the GPU cannot be calibrated; in one line.
    """
    given = invocation.options
    settings = settings_for(invocation.start(), given.gpu)
    measure_seconds = length_seconds(given.measure)
    path = None if given.output is None else Path(given.output)
    if path is not None:
        check_path(path, force=given.force)

    from exporter.cli.calibrate.child import Child, find_python
    from exporter.cli.calibrate.loop import Bench, Times, calibrate
    from exporter.cli.calibrate.measure import Meter, await_one
    from exporter.cli.calibrate.report import section, table
    from exporter.cli.print_metrics import quiet
    from exporter.cli.readers import choose_readers, driver_problem
    from exporter.clock import SystemClock
    from exporter.derive import IdleRules
    from exporter.sources import selection
    from exporter.sources.nvml.library import Library
    from exporter.specs import load_specs

    specs, clock = load_specs(settings.specs), SystemClock()
    problem = driver_problem(Library(settings.nvml_library))
    if problem is not None:
        raise ExporterError(f"there is no GPU to calibrate: {problem}")
    python = find_python(given.python, invocation.environ)
    rules = IdleRules(ignored_commands=frozenset(settings.hold_ignore))
    readers = choose_readers(settings, specs, clock)
    with ExitStack() as stack:
        # That other GPUs are left out is as asked for.
        stack.enter_context(quiet(selection.__name__))
        stack.callback(readers.stop)
        readers.start()
        await_one(readers, clock, time.sleep, given.gpu)
        bench = Bench(Meter(readers, clock, time.sleep), rules, Times(measure_seconds), _say)
        found = calibrate(
            bench, lambda device: Child(python, device.uuid, invocation.environ), specs
        )
    text = section(found, datetime.fromtimestamp(time.time(), timezone.utc).date().isoformat())
    _write(text, path)
    for line in table(found, given.output):
        print(line, file=sys.stdout if path is not None else sys.stderr)
    return STOPPED


def settings_for(settings: Settings, gpu: str | None) -> Settings:
    """Return the settings under which one real GPU is read once a second, and nothing else.

    Raises:
        ConfigError: they ask for other readings, or `gpu` is no index.
    """
    for flag, asked in (
        ("--demo", settings.demo or settings.demo_if_no_driver),
        ("--replay", settings.replay is not None),
        (f"--no-source.{NVML}", NVML not in settings.sources),
    ):
        if asked:
            raise ConfigError(f"{flag}: calibrate needs a real GPU")
    if gpu is not None and not (gpu.isascii() and gpu.isdecimal()):
        raise ConfigError(f"--gpu: expected the index of a GPU such as 0, got {shown(gpu)}")
    return replace(
        settings,
        sources=frozenset({NVML}),
        poll_interval_seconds=ROUND_SECONDS,
        poll_slow_interval_seconds=ROUND_SECONDS,
        gpu_include=settings.gpu_include if gpu is None else (str(int(gpu)),),
    )


def length_seconds(text: str) -> float:
    """Return what ``--measure`` says, in seconds.

    Raises:
        ConfigError: it is no duration.
    """
    try:
        return LENGTH.parse(text)
    except Unexpected:
        raise ConfigError(f"--measure: expected {LENGTH.expected}, got {shown(text)}") from None


def _write(text: str, path: Path | None) -> None:
    """Write the result; where that fails, it is not lost."""
    if path is not None:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            print(text, end="")
            raise ExporterError(
                f"{path}: {error.strerror or error}; the result is on standard output"
            ) from error
    else:
        print(text, end="")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
