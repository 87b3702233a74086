# SPDX-License-Identifier: Apache-2.0
"""``python -m exporter.sources.counters.programs NAME`` runs a program in a child process."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import signal
import sys
from collections.abc import Mapping

from exporter.sources.counters.wire import Port

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

_PR_SET_PDEATHSIG = 1


def run(name: str, programs: Mapping[str, str] = PROGRAMS) -> int:
    """Run a program until the exporter ends it; return its exit code."""
    die_with_parent()
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


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it is gone. Standard input
    ends then too, but a process that hangs in a driver call does not notice."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


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
