# SPDX-License-Identifier: Apache-2.0
"""Which process on this machine serves a port, and whether it takes a signal."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from exporter.cli.config import Url
from exporter.errors import SourceError
from exporter.sources.proc.tcp import LISTENING, tcp_sockets


def process_of(url: Url, procfs: Path) -> int:
    """Return the number of the process that listens at the URL's port, on this machine.

    Raises:
        SourceError: it is another machine's, or there is none that this user may look into.
    """
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
    """Return whether the process has a handler for a signal; without one, it could end it."""
    try:
        text = (procfs / str(pid) / "status").read_text("utf-8", "replace")
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", text, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def _is_own(host: str) -> bool:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _open_files(folder: Path) -> Iterator[str]:
    try:
        for link in folder.iterdir():
            try:
                yield str(link.readlink())
            except OSError:  # closed meanwhile
                continue
    except OSError:  # another user's, or gone
        return
