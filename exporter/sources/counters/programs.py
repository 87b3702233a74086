# SPDX-License-Identifier: Apache-2.0
"""``python -m exporter.sources.counters.programs NAME`` runs a program in a child process."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping

from exporter.sources.counters.port import Port

PROGRAMS: Mapping[str, str] = {
    "cupti": "exporter.sources.cupti.program:run",
    "dcgm": "exporter.sources.dcgm.hostengine:run",
}
"""By name: module and function ``run(options: Mapping[str, Any], port: Port) -> int``, which
returns the exit code. It is imported in the child alone."""

IGNORED_SIGNALS = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
"""What Ctrl-C, systemd and others send to the exporter and all its processes: the exporter decides
what follows from it, and ends the child by closing its standard input."""

KILL_SIGNAL = signal.SIGQUIT
"""Kills the process and all that it, or a library in it, has started."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def run(name: str, programs: Mapping[str, str] = PROGRAMS) -> int:
    """Run a program until the exporter ends it; return its exit code."""
    _fork_guard()
    faulthandler.enable()
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    port = _port()
    options = port.options()
    if port.ended:
        return 0
    module, _, function = programs[name].partition(":")
    code: int = getattr(importlib.import_module(module), function)(options, port)
    return code


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it is gone.

    Standard input ends then too, but a process that hangs in a driver call does not notice.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _fork_guard() -> None:
    """Fork: return in the child; in the parent, wait for it and exit with its exit code.

    However the child ends, its descendants are killed, also those that have left its session.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    die_with_parent(KILL_SIGNAL)
    child = os.fork()
    if not child:
        die_with_parent()
        return
    os.closerange(0, 3)
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(KILL_SIGNAL, lambda *_: _kill(child))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.signal(KILL_SIGNAL, signal.SIG_IGN)
    with contextlib.suppress(ChildProcessError):  # there are none left
        while True:
            for pid in _children():
                _kill(pid)
            os.wait()
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children() -> Iterator[int]:
    """Yield the processes whose parent this one is, by inheritance too."""
    own = str(os.getpid())
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[1].decode() == own:
                yield int(pid)


def _port() -> Port:
    """Redirect what libraries print to standard error, and keep the pipes for messages."""
    orders, messages = os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Port(orders, messages)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
