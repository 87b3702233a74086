# SPDX-License-Identifier: Apache-2.0
"""Starts a training job with automatic instrumentation: the same command, in the same process."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.errors import ConfigError, one_line

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes, as shells have them."""

INJECT = Path(__file__).parent.parent / "roofline_job" / "inject"
"""The folder that holds nothing but a sitecustomize.py."""

_FIRST_ENVIRONMENT = Path("/proc/self/environ")


def job_environment(environ: Mapping[str, str], job: str | None) -> dict[str, str]:
    """Return the environment in which every Python of the job instruments itself."""
    folder = str(INJECT)
    if os.pathsep in folder:
        raise ConfigError(f"run: {folder}: PYTHONPATH cannot name a folder with {os.pathsep!r}")
    if job is not None and not job.strip():
        raise ConfigError("--job: expected a name, such as resnet, got nothing")
    inherited = environ.get("PYTHONPATH", "")
    entries = [folder] if not inherited else [folder, inherited]
    named = {} if job is None else {"ROOFLINE_JOB_NAME": job}
    return {
        **environ,
        **named,
        "ROOFLINE_JOB_INSTRUMENT": "1",
        "PYTHONPATH": os.pathsep.join(entries),
    }


def execute(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Become the command; only where that is impossible return the exit code and why."""
    _undo_what_python_set()
    try:
        os.execvpe(command[0], list(command), environ)  # noqa: S606 # as asked, without a shell
    except FileNotFoundError:
        path = shutil.which(command[0], path=environ.get("PATH"))
        if path is not None:
            return NOT_EXECUTABLE, f"{_shown(path)}: the interpreter in its first line is missing"
        return NOT_FOUND, f"{_shown(command[0])}: command not found"
    except ValueError:  # an empty word
        return NOT_FOUND, f"{_shown(command[0])}: command not found"
    except OSError as error:
        reason = (os.strerror(error.errno or errno.EIO)).lower()
        return NOT_EXECUTABLE, f"{_shown(command[0])}: cannot be executed: {reason}"


def without_coercion(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that this process was given.

    In the C locale Python sets LC_CTYPE for itself and its children (PEP 538); a job that is no
    Python would notice.
    """
    try:
        first = _FIRST_ENVIRONMENT.read_bytes().split(b"\0")
    except OSError:
        return dict(environ)
    given = {name: value for name, _, value in (entry.partition(b"=") for entry in first)}
    restored = {name: value for name, value in environ.items() if name != "LC_CTYPE"}
    if b"LC_CTYPE" in given:
        restored["LC_CTYPE"] = os.fsdecode(given[b"LC_CTYPE"])
    return restored


def _undo_what_python_set() -> None:
    """Give the job the signal dispositions that Python changed for itself when it started."""
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def _shown(word: str) -> str:
    return one_line(word) or "''"
