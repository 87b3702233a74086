# SPDX-License-Identifier: Apache-2.0
"""The TCP sockets of this network namespace, and the user at the other end of a connection."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ESTABLISHED, LISTENING = "01", "0A"
"""States in /proc/net/tcp."""
_MAPPED = "0000000000000000FFFF0000"
"""Before an IPv4 address, of a socket that serves IPv6 as well."""


class TcpSocket(NamedTuple):
    """One line of /proc/net/tcp or tcp6; addresses are as written there."""

    local: str
    remote: str
    state: str
    uid: int
    inode: int
    """0 while no process has it: not yet accepted, or closed. Its uid is 0 then, whosever it is."""


def tcp_sockets(procfs: Path) -> Iterator[TcpSocket]:
    """Yield the sockets of this process's network namespace; none where they cannot be read."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (procfs / "net" / name).read_text("ascii", "replace").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if len(fields) > 9:
                local, remote, state = fields[1:4]
                yield TcpSocket(local, remote, state, int(fields[7]), int(fields[9]))


def accepted_by(connection: socket.socket, procfs: Path) -> int | None:
    """Return the uid of who has accepted a connection over IPv4; None where nobody of this network
    namespace has.

    Not that of a listener: it may have been another one, and may be gone.
    """
    local, remote = map(_written, (connection.getpeername(), connection.getsockname()))
    ends = {(local, remote), (_MAPPED + local, _MAPPED + remote)}
    for each in tcp_sockets(procfs):
        if (each.local, each.remote) in ends and each.state == ESTABLISHED and each.inode:
            return each.uid
    return None


def _written(address: tuple[str, int]) -> str:
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
