# SPDX-License-Identifier: Apache-2.0
"""Asks NCCL's RAS for its status in JSON: commands and answers are lines of text over TCP.

The protocol is that of NCCL's src/ras/client.cc; JSON came with NCCL 2.28.
"""

from __future__ import annotations

import socket

from exporter.exchange import Deadline
from exporter.sources.poller import Unreadable

PROTOCOL = 2
RANKS_SECONDS = 5
"""How long RAS waits for other processes; it takes at most as long again to give up on them."""
CONNECT_SECONDS = 2.0
TOTAL_SECONDS = 2.0 * RANKS_SECONDS + 3.0
MOST_BYTES = 16 * 2**20
"""A rank takes 700 bytes for each communicator that it is in."""
LONGEST_LINE = 1024


class Refused(Unreadable):
    """RAS is there, and does not give its status; says why in one line."""


def ask(host: str, port: int) -> bytes | None:
    """Return the status as JSON; None where nobody listens: no job with NCCL runs here.

    Raises:
        Refused: who does is no RAS, is too old, or did not finish within `TOTAL_SECONDS`.
    """
    deadline = Deadline(TOTAL_SECONDS)
    try:
        connection = socket.create_connection((host, port), CONNECT_SECONDS)
    except OSError:
        return None
    with connection:
        try:
            return _asked(_Lines(connection, deadline))
        except OSError as error:
            raise Refused(f"NCCL's RAS at {host}:{port}: {error.strerror or error}") from error


class _Lines:
    """A connection of lines, each waited for until a deadline."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline
        self._read = bytearray()

    def command(self, text: str) -> str:
        """Send a command; return the line that answers it."""
        self._send(text)
        while b"\n" not in self._read:
            if len(self._read) > LONGEST_LINE or not self._receive():
                raise Refused("what answers there is not NCCL's RAS")
        line, _, rest = self._read.partition(b"\n")
        self._read = rest
        return line.decode("utf-8", "replace").strip()

    def everything(self, text: str) -> bytes:
        """Send the last command; return all until the other side closes."""
        self._send(text)
        while self._receive():
            if len(self._read) > MOST_BYTES:
                raise Refused(f"the status of NCCL's RAS is larger than {MOST_BYTES >> 20} MiB")
        return bytes(self._read)

    def _send(self, text: str) -> None:
        self._wait()
        self._connection.sendall(text.encode() + b"\n")

    def _receive(self) -> bool:
        self._wait()
        data = self._connection.recv(1 << 16)
        self._read += data
        return bool(data)

    def _wait(self) -> None:
        try:
            self._connection.settimeout(self._deadline.left())
        except TimeoutError:
            raise Refused(f"NCCL's RAS takes longer than {TOTAL_SECONDS:g} s") from None


def _asked(lines: _Lines) -> bytes:
    if not lines.command(f"CLIENT PROTOCOL {PROTOCOL}").upper().startswith("SERVER PROTOCOL "):
        raise Refused("what answers there is not NCCL's RAS")
    for command in (f"TIMEOUT {RANKS_SECONDS}", "SET FORMAT json"):
        answer = lines.command(command)
        if answer != "OK":
            raise Refused("NCCL's RAS has no JSON: NCCL 2.28 or newer is needed")
    return lines.everything("STATUS")
