# SPDX-License-Identifier: Apache-2.0
"""``counters pause|resume``: hands the daemon's hardware counters to a profiler, and back.

The daemon takes a signal and no request: only users of this machine may pause it,
not everybody who reaches the port.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from exporter.cli.command import STOPPED, Invocation
from exporter.cli.config import Url
from exporter.cli.counters.machine import number_in
from exporter.cli.daemon_address import daemon_of
from exporter.cli.http_get import DaemonAddress
from exporter.cli.snapshot_reader import ask_daemon
from exporter.errors import SourceError
from exporter.model.reading import group_and_instance, share_name
from exporter.sources.proc.tcp import LISTENING, tcp_sockets

SIGNALS: Mapping[str, signal.Signals] = {"pause": signal.SIGUSR1, "resume": signal.SIGUSR2}
PAUSED = "paused"
SETTLE_SECONDS = 3.0
"""How long to wait for the daemon, beside one round of readings: it takes 2 s at most."""
STEP_SECONDS = 0.2


def run(invocation: Invocation) -> int:
    """Have the daemon pause or resume; return the exit code."""
    word = invocation.options.action
    settings = invocation.settings()
    daemon = daemon_of(settings, f"counters {word}")
    send(SIGNALS[word], process_of(daemon.url, settings.path_procfs), settings.path_procfs)
    patience = SETTLE_SECONDS + settings.poll_interval_seconds
    print(outcome(word, lambda: paused_groups(daemon), patience))
    return STOPPED


def process_of(url: Url, procfs: Path) -> int:
    """Return the process that listens at the URL's port on this machine; else raise SourceError."""
    if not _is_own(url.host):
        raise SourceError(f"{url} is not of this machine: run this command there")
    sockets = {
        f"socket:[{each.inode}]"
        for each in tcp_sockets(procfs)
        if each.state == LISTENING and each.local.endswith(f":{url.port:04X}")
    }
    if not sockets:
        raise SourceError(f"nothing listens on port {url.port} of this machine")
    for folder in procfs.glob("[0-9]*/fd"):
        if sockets & set(_open_files(folder)):
            return int(folder.parent.name)
    raise SourceError(
        f"what listens on port {url.port} is another user's: run this command as that user or root"
    )


def catches(pid: int, number: signal.Signals, procfs: Path) -> bool:
    """Return whether the process handles a signal, which would end it otherwise."""
    caught = number_in(procfs / str(pid) / "status", "SigCgt", 16) or 0
    return bool(caught >> (number - 1) & 1)


def _is_own(host: str) -> bool:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _open_files(folder: Path) -> Iterator[str]:
    with suppress(OSError):  # another user's, or gone
        for link in folder.iterdir():
            with suppress(OSError):  # closed meanwhile
                yield str(link.readlink())


def send(number: signal.Signals, pid: int, procfs: Path) -> None:
    """Send a signal to a process; raise SourceError if it does not take it."""
    if not catches(pid, number, procfs):
        raise SourceError(f"process {pid} does not take {number.name}: it is no daemon that can")
    try:
        os.kill(pid, number)
    except OSError as error:
        raise SourceError(
            f"process {pid} cannot be sent {number.name}: {error.strerror}"
        ) from error


def outcome(
    word: str,
    look: Callable[[], list[str]],
    patience_seconds: float,
    sleep: Callable[[float], object] = time.sleep,
) -> str:
    """Return the outcome in one line; ``look()`` returns what is paused.

    Raises SourceError if the daemon does not answer, or has not resumed.
    """
    for _ in range(round(patience_seconds / STEP_SECONDS)):
        found = look()
        if word == "pause" and found:
            return f"released: {', '.join(found)}"
        if word == "resume" and not found:
            return "resumed"
        sleep(STEP_SECONDS)
    if word == "pause":
        return "no source of this daemon has counters that a profiler needs"
    raise SourceError(f"still paused after {patience_seconds:.0f} s: {', '.join(found)}")


def paused_groups(daemon: DaemonAddress) -> list[str]:
    """Return the paused counter groups of each GPU, such as ``cupti of GPU 0``."""
    return [
        f"{group} of GPU {share_name(gpu.device.index, instance)}"
        for gpu in ask_daemon(daemon).snapshot.gpus
        for name, state in sorted(gpu.states.items())
        for group, instance in (group_and_instance(name),)
        if state == PAUSED
    ]
