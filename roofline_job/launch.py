# SPDX-License-Identifier: Apache-2.0
"""``roofline-exporter run``: starts a training job that instruments itself.

It becomes the job's command, in the same process and with a few variables more in its
environment; or it prints these variables. That is all here, and needs nothing but the standard
library: it works where roofline-exporter was installed without its dependencies.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .command import PROGRAM, first_environment
from .summary import VARIABLE

STOPPED, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes, as shells have them."""

INJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inject")
"""The folder that holds nothing but a sitecustomize.py."""

SWITCH = "ROOFLINE_JOB_INSTRUMENT"

SUMMARY = "Start a training job that measures its own stalls, unchanged."

HELP = f"""\
usage: {PROGRAM} run [OPTION ...] [--] COMMAND [ARGUMENT ...]
       {PROGRAM} run [--job NAME] [--count-flops] --print-env

{SUMMARY}

Becomes the command: the same process, output, signals and exit code, and one
line more on standard error as the job ends: what it waited for, and how much
it computed, if that is counted.
With {SWITCH}=0 in the environment it changes nothing in that.

options:
  -h, --help     Show this and exit.
  --job NAME     The job's name in the metrics. (default: its script's)
  --count-flops  Count the FLOPs of one step with PyTorch, and of others whose
                 batches have new shapes: these steps take longer. Not of
                 compiled models and CUDA graphs.
  --print-env    Print what is set in the job's environment, for a pod's
                 specification or the script of a job, which sets it with
                 eval "$({PROGRAM} run --print-env)"
  --quiet        Leave out the line at the end.
  --summary FILE
                 Write what that line says, and more, to FILE as JSON, for
                 {PROGRAM} compare; also with --quiet.
  --with-daemon  Where the node has no daemon: start one beside the job, as
                 this user, for as long as it lasts; the tasks of a Slurm step
                 share one on each node. Ends with a report on the job's GPUs.
  --report FILE  Where to write that report; or a folder for it. (default:
                 roofline-JOB.STEP-NODE.txt where the job was submitted; not
                 in a Slurm job, standard error)
"""

_SEE = f"(see {PROGRAM} run --help)"
_EXPECTED = "run: expected a command, such as: run -- torchrun train.py"
_SWITCHES = ("--count-flops", "--print-env", "--quiet", "--with-daemon")
_VALUES = {
    "--job": "a name, such as resnet",
    "--summary": "a file, such as run.json",
    "--report": "a file or folder",
}
"""What is expected behind the flags that take a value."""
_FLAGS = ("--help", *_SWITCHES, *_VALUES)

BesideDaemon = Callable[[Callable[[Mapping[str, str]], int], Mapping[str, str], str | None], int]
"""Runs a job beside a daemon: takes what a process calls to become the job, with these variables
more, the environment, and where the report goes; returns an exit code."""


class UsageError(Exception):
    """A mistake in the command line; the message is one line."""


@dataclass(frozen=True)
class Options:
    """The parsed command line."""

    command: Sequence[str] = ()
    job: str | None = None
    counts_flops: bool = False
    prints: bool = False
    quiet: bool = False
    helps: bool = False
    summary: str | None = None
    with_daemon: bool = False
    report: str | None = None


def main(words: Sequence[str], beside_daemon: BesideDaemon | None = None) -> int:
    """Become the command that follows ``run``; return an exit code if that fails."""
    try:
        options = parse(words)
        if options.helps:
            return _print(HELP)
        variables = added(options.job, counts_flops=options.counts_flops)
        if options.prints:
            return _print(exports(variables))
        given = first_environment()
        if options.summary is not None:
            from . import summary_file

            summary = summary_file.begin(options.summary)
            variables.update(summary)
            given = {**given, **summary}

        def become(more: Mapping[str, str]) -> int:
            environ = job_environment({**given, **more}, variables, quiet=options.quiet)
            code, reason = execute(options.command, environ)
            return _fail(f"run: {reason}", code)

        if options.with_daemon and beside_daemon and given.get(SWITCH) != "0":
            return beside_daemon(become, given, options.report)
        return become({})
    except UsageError as error:
        return _fail(str(error), USAGE)
    except KeyboardInterrupt:
        return INTERRUPTED


def parse(words: Sequence[str]) -> Options:
    """Read the words after ``run``.

    Raises:
        UsageError: something is wrong with one of them, or missing.
    """
    own, command = list(words), list[str]()
    switches: set[str] = set()
    values: dict[str, str] = {}
    while own and not command:
        word = own.pop(0)
        name, is_given, value = word.partition("=")
        if word in ("-h", "--help"):
            return Options(helps=True)
        if word == "--":
            own, command = [], own
        elif word in _SWITCHES:
            switches.add(word)
        elif name in _VALUES:
            values[name] = value if is_given else own.pop(0) if own and own[0][:1] != "-" else ""
            if not values[name].strip():
                raise UsageError(f"{name}: expected {_VALUES[name]}, got nothing")
        elif name in _FLAGS:
            raise UsageError(f"{name}: takes no value {_SEE}")
        elif word.startswith("-"):
            raise UsageError(f"unknown flag {_one_line(name)}{_did_you_mean(name)} {_SEE}")
        else:
            command = [word, *own]
    prints = "--print-env" in switches
    if prints and command:
        raise UsageError("--print-env: expected no command, it starts none")
    if prints and "--summary" in values:
        raise UsageError("--summary: expected a command, --print-env starts none")
    if not prints and not command:
        raise UsageError(_EXPECTED)
    with_daemon = "--with-daemon" in switches
    if "--report" in values and not with_daemon:
        raise UsageError("--report: expected --with-daemon, whose report it is")
    if prints and with_daemon:
        raise UsageError("--print-env: expected no --with-daemon, it starts none")
    return Options(
        command=tuple(command),
        job=values.get("--job"),
        counts_flops="--count-flops" in switches,
        prints=prints,
        quiet="--quiet" in switches,
        summary=values.get("--summary"),
        with_daemon=with_daemon,
        report=values.get("--report"),
    )


def _did_you_mean(name: str) -> str:
    from difflib import get_close_matches

    words = [flag.removeprefix("--") for flag in _FLAGS]
    near = get_close_matches(name[:100].removeprefix("--"), words, n=1)
    return f", did you mean --{near[0]}?" if near else ""


def added(job: str | None, *, counts_flops: bool = False) -> dict[str, str]:
    """Return the variables that make every Python of a job instrument itself."""
    if os.pathsep in INJECT:
        raise UsageError(f"run: {INJECT}: PYTHONPATH cannot name a folder with {os.pathsep!r}")
    named = {} if job is None else {"ROOFLINE_JOB_NAME": job}
    counted = {"ROOFLINE_JOB_COUNT_FLOPS": "1"} if counts_flops else {}
    return {SWITCH: "1", **named, **counted, "PYTHONPATH": INJECT}


def job_environment(
    environ: Mapping[str, str], variables: Mapping[str, str], *, quiet: bool = True
) -> dict[str, str]:
    """Return the job's environment with these variables, unless it switches all of this off; with
    the id of this process, its first one, if that is to write the line at the end."""
    kept = {name: value for name, value in environ.items() if name != VARIABLE}
    if kept.get(SWITCH) == "0":
        return kept
    inherited = kept.get("PYTHONPATH", "")  # an empty entry would be the current folder
    entries = [variables["PYTHONPATH"], *([inherited] if inherited else [])]
    summary = {} if quiet else {VARIABLE: str(os.getpid())}
    return {**kept, **variables, **summary, "PYTHONPATH": os.pathsep.join(entries)}


def exports(variables: Mapping[str, str]) -> str:
    """Return the variables as shell commands that extend PYTHONPATH."""
    from shlex import quote

    inherited = {"PYTHONPATH": '"${PYTHONPATH:+:$PYTHONPATH}"'}
    return "".join(
        f"export {name}={quote(value)}{inherited.get(name, '')}\n"
        for name, value in variables.items()
    )


def execute(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Become the command; where that is impossible, return the exit code and why."""
    _undo_what_python_set()
    word = _one_line(command[0]) or repr("")
    try:
        os.execvpe(command[0], list(command), environ)  # noqa: S606 # as asked, without a shell
    except (FileNotFoundError, ValueError):  # ValueError: an empty word
        path = shutil.which(command[0], path=environ.get("PATH"))
        if path is not None:
            reason = "the interpreter in its first line is missing"
            return NOT_EXECUTABLE, f"{_one_line(path)}: {reason}"
        return NOT_FOUND, f"{word}: command not found"
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO).lower()
        return NOT_EXECUTABLE, f"{word}: cannot be executed: {reason}"


def _undo_what_python_set() -> None:
    """Give the job the signal dispositions that Python changed for itself when it started."""
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def _print(text: str) -> int:
    """Write to standard output; return the exit code."""
    if sys.stdout is None:  # closed from the start
        return STOPPED
    try:
        sys.stdout.buffer.write(os.fsencode(text))  # a name may hold any byte
        sys.stdout.flush()
    except OSError as error:
        # Python would try again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        is_pipe = isinstance(error, BrokenPipeError)  # its reader left early
        return FAILED if is_pipe else _fail(error.strerror or str(error), FAILED)
    return STOPPED


def _fail(message: str, code: int) -> int:
    if sys.stderr is not None:  # print would take standard output instead
        print(f"{PROGRAM}: {message}", file=sys.stderr)
    return code


def _one_line(text: str) -> str:
    """Return the text with line breaks, control and other unprintable characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
