# SPDX-License-Identifier: Apache-2.0
"""The command line: ``roofline-exporter [COMMAND] [FLAGS]`` and its exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter import log
from exporter.cli import config
from exporter.errors import ConfigError, ExporterError, one_line
from exporter.version import revision, version
from roofline_job import launch

STOPPED, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

PROGRAM = "roofline-exporter"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Invocation:
    """What a command is run with."""

    argv: Sequence[str]
    """The words after the command's name."""
    environ: Mapping[str, str]
    parser: config.Parser
    options: argparse.Namespace

    def settings(self) -> config.Settings:
        """Return the settings that hold and start logging as they say."""
        settings = config.load(self.argv, self.environ, self.parser)
        log.setup(settings.log_level, settings.log_format)
        return settings


@dataclass(frozen=True, slots=True)
class Command:
    """One word that may follow the program's name."""

    help: str
    run: Callable[[Invocation], int]
    usage: str = "[FLAGS]"
    add_options: Callable[[config.Parser], None] = lambda parser: None
    takes_flags: bool = True
    """Whether it takes the flags of the settings; else it reads all words after its name itself."""


def _serve(invocation: Invocation) -> int:
    # They wait until there are handlers: a reload or a stop right after the start is no accident.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP))
    try:
        settings = invocation.settings()
        from exporter.cli.serve import serve  # a mistake is told before the web framework is loaded

        given = {
            name: value for name, value in settings.describe().items() if name in settings.given
        }
        _log.debug("settings", extra={"fields": given})
        return serve(settings, lambda: config.reload(settings, invocation.argv, invocation.environ))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _once(invocation: Invocation) -> int:
    settings = invocation.settings()
    from exporter.cli.serve import once

    return once(settings)


def _check_config(invocation: Invocation) -> int:
    problems = config.check_all(invocation.argv, invocation.environ, invocation.parser)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return USAGE
    print("configuration is valid")
    return STOPPED


def _add_healthcheck_options(parser: config.Parser) -> None:
    parser.own.add_argument(
        "--ready", action="store_true", help="Ask whether a GPU is up, not only for life."
    )
    parser.own.add_argument(
        "--url",
        metavar="URL",
        help="Where the daemon is. (default: this node, at web.listen-address)",
    )


def _healthcheck(invocation: Invocation) -> int:
    from exporter.cli.ask import base_url
    from exporter.cli.healthcheck import check

    settings = config.load(invocation.argv, invocation.environ, invocation.parser)
    url = invocation.options.url or base_url(settings.web_listen_address, "healthcheck")
    is_well, line = check(url, ready=invocation.options.ready)
    print(line, file=sys.stdout if is_well else sys.stderr)
    return STOPPED if is_well else FAILED


def _add_status_options(parser: config.Parser) -> None:
    from exporter.cli.status.command import add_options

    add_options(parser)


def _status(invocation: Invocation) -> int:
    from exporter.cli.status.command import Options, status

    # The table is for a person: logging starts only where there is something to log.
    settings = config.load(invocation.argv, invocation.environ, invocation.parser)
    given = invocation.options
    return status(settings, Options(given.url, given.watch, given.json), invocation.environ)


def _add_specs_options(parser: config.Parser) -> None:
    parser.own.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="One GPU model: its key, its name by NVML, or a part of either.",
    )
    parser.own.add_argument(
        "--format", default="table", metavar="FORMAT", help="table or json. (default: table)"
    )


def _specs(invocation: Invocation) -> int:
    settings = config.load(invocation.argv, invocation.environ, invocation.parser)
    from exporter.cli.specs import specs  # reads a long file, after mistakes are told

    given = invocation.options
    return specs(settings.specs, given.name, given.format, invocation.environ)


def _add_record_options(parser: config.Parser) -> None:
    parser.own.add_argument("file", nargs="?", metavar="FILE", help="Compressed if it ends in .gz.")
    parser.own.add_argument(
        "--duration", metavar="DURATION", help="Stop after it, such as 60s. (default: on SIGINT)"
    )
    parser.own.add_argument(
        "--force", action="store_true", help="Overwrite FILE where it exists already."
    )


def _record(invocation: Invocation) -> int:
    settings = invocation.settings()
    given = invocation.options
    if given.file is None:
        raise ConfigError("record: expected a FILE, such as support.jsonl.gz")
    if settings.replay is not None:
        raise ConfigError("--replay: a recording cannot be recorded again, copy the file")
    from exporter.cli.nodes import choose_readers
    from exporter.cli.record import check_path, length_seconds, record, until_signal
    from exporter.clock import SystemClock
    from exporter.specs import load_specs

    length, path = length_seconds(given.duration), Path(given.file)
    check_path(path, force=given.force)
    specs, clock = load_specs(settings.specs), SystemClock()
    readers = choose_readers(settings, specs, clock)
    interval = settings.poll_interval_seconds
    stopped = until_signal()
    print(record(readers, specs, clock, path, interval, length, force=given.force, stopped=stopped))
    return STOPPED


def _run_job(invocation: Invocation) -> int:
    return launch.main(invocation.argv, invocation.environ)


COMMANDS: Mapping[str, Command] = {
    "serve": Command("Serve /metrics until stopped; the default.", _serve),
    "once": Command("Read the GPUs twice, one poll.interval apart; print one page.", _once),
    "status": Command(
        "Show what each GPU does now; asks the daemon, if one runs.",
        _status,
        "[--watch [SECONDS]] [--json] [--url URL] [FLAGS]",
        _add_status_options,
    ),
    "specs": Command(
        "Show the ceilings of GPU models and where they come from.",
        _specs,
        "[NAME] [--format table|json] [FLAGS]",
        _add_specs_options,
    ),
    "record": Command(
        "Write all readings to FILE, for --replay or a support case.",
        _record,
        "FILE [--duration 60s] [--force] [FLAGS]",
        _add_record_options,
    ),
    "run": Command(launch.SUMMARY, _run_job, takes_flags=False),
    "check-config": Command(
        "Print each problem of the configuration, one on a line.", _check_config
    ),
    "healthcheck": Command(
        "Ask the daemon on this node how it is; exit 0 if well, else 1.",
        _healthcheck,
        "[--ready] [--url URL] [FLAGS]",
        _add_healthcheck_options,
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every failure is one line on standard error."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    try:
        if os.getpid() == 1:
            # In a container: the kernel drops a signal that its first process has no handler for,
            # and `docker stop` would wait for 10 s until the daemon has its own.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        code = _run(words)
        print(end="", flush=True)
    except ConfigError as error:
        return _fail(error, USAGE)
    except ExporterError as error:
        return _fail(error, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output left early
        _drop_output()
        return FAILED
    except OSError as error:
        _drop_output()
        return _fail(ExporterError(error.strerror or str(error)), FAILED)
    return code


def _open_closed_streams() -> None:
    """Write to nowhere what would go to a stream that was closed before the start."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _drop_output() -> None:
    """Write off what cannot be written: Python would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: Sequence[str]) -> int:
    name = words[0] if words and not words[0].startswith("-") else ""
    command = COMMANDS.get(name or "serve")
    if command is None:
        nearest = config.did_you_mean(name, COMMANDS)
        raise ConfigError(f"unknown command {config.shown(name)}{nearest} (see {PROGRAM} --help)")
    argv = words[1:] if name else words
    parser = config.Parser(
        f"{PROGRAM} {name or '[COMMAND]'} {command.usage}",
        command.help if name else _overview(),
    )
    if not command.takes_flags:
        return command.run(Invocation(argv, os.environ, parser, argparse.Namespace()))
    command.add_options(parser)
    options = config.parse(argv, parser).options
    if getattr(options, "help", False):
        print(parser.format_help(), end="")
        return STOPPED
    if getattr(options, "version", False):
        print(_version_line())
        return STOPPED
    return command.run(Invocation(argv, os.environ, parser, options))


def _overview() -> str:
    width = max(map(len, COMMANDS))
    commands = (f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items())
    return "\n".join(
        (
            "Prometheus exporter that tells how saturated, how limited and how idle each",
            "NVIDIA GPU is, against its roofline.",
            "",
            "commands:",
            *commands,
            "",
            "Every command but run takes the flags below, after its name. --a.b-c may also",
            "be given as the variable ROOFLINE_A_B_C or in YAML as a: {b-c: ...}; a flag",
            "comes before a variable, a variable before the file, the file before the",
            "default.",
        )
    )


def _version_line() -> str:
    return f"{PROGRAM} {version()} (revision {revision()}, python {platform.python_version()})"


def _fail(error: Exception, code: int) -> int:
    print(f"{PROGRAM}: {one_line(str(error))}", file=sys.stderr)
    return code
