# SPDX-License-Identifier: Apache-2.0
"""The command line: ``roofline-exporter [COMMAND] [FLAGS]`` and its exit codes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from exporter import __version__, log
from exporter.cli import config
from exporter.cli.command import FAILED, INTERRUPTED, STOPPED, USAGE, Invocation
from exporter.errors import ConfigError, ExporterError
from exporter.version import revision
from roofline_job import launch

PROGRAM = "roofline-exporter"
_OVERVIEW = """\
Prometheus exporter that shows how saturated, how limited and how idle each
NVIDIA GPU is, against its roofline.

commands:
{}

Every command but run takes the flags below, after its name, and shows its own
with --help. --a.b-c may also be given as the variable ROOFLINE_A_B_C or in
YAML as a: {{b-c: ...}}; a flag comes before a variable, a variable before the
file, the file before the default."""


@dataclass(frozen=True, slots=True)
class Command:
    """One word that may follow the program's name.

    Its module has ``run(invocation)``, which returns the exit code, and, if it has options,
    ``add_options(parser)``. It is loaded only for this command; what takes long to import is
    imported in its `run`, so that help and mistakes come at once.
    """

    help: str
    usage: str = "[FLAGS]"
    flags: Collection[str] | None = ()
    """Sections of flags in its help, beside its own options; None for all."""
    module: str = ""
    """In this package; unless given, it is called like the command, with _ for -."""


COMMANDS: Mapping[str, Command] = {
    "serve": Command("Serve /metrics until stopped; the default.", flags=None),
    "once": Command(
        "Read the GPUs twice, one poll.interval apart; print one page.", module="print_metrics"
    ),
    "status": Command(
        "Show what each GPU does now; asks the daemon if one runs.",
        "[--watch [SECONDS]] [--sort ORDER] [--json] [--url URL] [FLAGS]",
        ("url",),
    ),
    "why": Command(
        "Say what holds a GPU or a job back, and what to change.",
        "[GPU|JOB] [--json] [--url URL] [FLAGS]",
        ("url",),
    ),
    "idle": Command(
        "Say by its exit code whether GPUs have been idle for so long.",
        "[--gpu|--pod|--job|--user NAME] [--for 30m] [--json] [--url URL] [FLAGS]",
        ("url",),
    ),
    "specs": Command(
        "Show the ceilings of GPU models and where they come from.",
        "[NAME] [--format table|json] [FLAGS]",
        ("specs",),
    ),
    "record": Command(
        "Write all readings to FILE, for --replay or a support case.",
        "FILE [--duration 60s] [--force] [FLAGS]",
    ),
    "counters": Command(
        "Show what counters a chip has; hand them to a profiler.",
        "check|pause|resume [--chip CHIP] [--cuda VERSION] [--format table|json] [FLAGS]",
        ("url",),
    ),
    "run": Command(launch.SUMMARY),
    "compare": Command(
        "Compare two jobs by what run --summary wrote of them.",
        "A B [--fail-if EXPR] [--format text|json] [FLAGS]",
    ),
    "report": Command(
        "Report GPU-hours, stalls, energy and cost from a Prometheus.",
        "--prometheus URL [--range 7d] [--by owner] [--format table|html|csv|json] [FLAGS]",
        ("url",),
    ),
    "check-config": Command("Print each problem of the configuration, one on a line."),
    "healthcheck": Command(
        "Ask the daemon whether it is healthy; exit 0 if it is, else 1.",
        "[--ready] [--url URL] [FLAGS]",
        ("url",),
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; each problem is one line on standard error."""
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
    """Drop what cannot be written: Python would try again at exit."""
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
    if name == "run":  # reads the words after its name itself, also where this package is not
        from exporter.cli.job.supervise import supervise

        return launch.main(argv, beside_daemon=supervise)
    place = command.module or (name or "serve").replace("-", "_")
    module: Any = import_module(f"exporter.cli.{place}")
    parser = config.Parser(
        f"{PROGRAM} {name or '[COMMAND]'} {command.usage}", command.help if name else _overview()
    )
    if hasattr(module, "add_options"):
        module.add_options(parser)
    options = config.parse(argv, parser).options
    asked = getattr(options, "help", None)
    if asked is not None:
        if asked != "all" and f"--help={asked}" in argv:
            raise ConfigError(f"--help: expected nothing or all, got {config.shown(asked)}")
        if asked != "all" and command.flags is not None:
            parser.shorten_help(command.flags)
        print(parser.format_help(), end="")
        return STOPPED
    if getattr(options, "version", False):
        import platform  # takes longer to load than most of the rest

        python = platform.python_version()
        print(f"{PROGRAM} {__version__} (revision {revision()}, python {python})")
        return STOPPED
    code: int = module.run(Invocation(argv, os.environ, parser, options))
    return code


def _overview() -> str:
    width = max(map(len, COMMANDS))
    commands = (f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items())
    return _OVERVIEW.format("\n".join(commands))


def _fail(error: ExporterError, code: int) -> int:
    problems = error.problems if isinstance(error, ConfigError) else (str(error),)
    if log.flush():
        for problem in problems:
            print(f"{PROGRAM}: {problem}", file=sys.stderr)
    return code
