# SPDX-License-Identifier: Apache-2.0
"""Clients that do what no good client does, on plain sockets."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

CHUNK_BYTES = 1 << 16
MOST_KEPT_BYTES = 1 << 20
SMALL_BUFFER_BYTES = 4096
SMALL_SEGMENT_BYTES = 536
CONNECT_SECONDS = 3.0
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass
class Exchange:
    """What became of a connection."""

    data: bytes = b""
    """What came, up to a bound."""
    sent: int = 0
    closed: bool = False
    """Whether the server ended it."""

    @property
    def statuses(self) -> list[int]:
        """The status codes of all answers, in order."""
        return [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3}) ", self.data)]


def connect(port: int, *, small: bool = False) -> socket.socket:
    """Return a connection to the daemon."""
    connection = _plain(small=small)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", port))
    return connection


def _plain(*, small: bool) -> socket.socket:
    """Return a socket; `small` makes the kernel keep little at both ends.

    The server's kernel keeps ten segments, which on loopback are of 64 kB: a client that asks for
    small ones does not need a large answer to make the server wait.
    """
    connection = socket.socket()
    if small:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT_BYTES)
    return connection


def talk(port: int, pieces: Iterable[bytes], seconds: float) -> Exchange:
    """Send the pieces one after the other, reading meanwhile; end when the server or time does."""
    exchange, started = Exchange(), time.monotonic()
    source: Iterator[bytes] = iter(pieces)
    with contextlib.closing(connect(port)) as connection:
        connection.setblocking(False)
        waiting = memoryview(next(source, b""))
        while (left := started + seconds - time.monotonic()) > 0:
            readable, writable, _ = select.select(
                [connection], [connection] if waiting else [], [], min(left, 0.05)
            )
            try:
                if readable:
                    data = connection.recv(CHUNK_BYTES)
                    if not data:
                        exchange.closed = True
                        break
                    exchange.data = (exchange.data + data)[:MOST_KEPT_BYTES]
                if writable:
                    count = connection.send(waiting)
                    exchange.sent += count
                    waiting = waiting[count:]
                    if not waiting:
                        waiting = memoryview(next(source, b""))
            except (ConnectionError, BrokenPipeError):
                exchange.closed = True
                break
    return exchange


class Crowd:
    """Many connections at once that send something and then do nothing."""

    def __init__(self, port: int, count: int, first: bytes = b"", *, small: bool = False) -> None:
        """Connect all of them; none is waited for longer than CONNECT_SECONDS."""
        self.connections = [_plain(small=small) for _ in range(count)]
        waiting = set(self.connections)
        for each in self.connections:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        poll = select.poll()
        by_number = {each.fileno(): each for each in self.connections}
        for number in by_number:
            poll.register(number, select.POLLOUT)
        deadline = time.monotonic() + CONNECT_SECONDS
        while waiting and time.monotonic() < deadline:
            for number, _ in poll.poll(100):
                poll.unregister(number)
                waiting.discard(by_number[number])
                if first:
                    with contextlib.suppress(OSError):
                        by_number[number].send(first)

    @property
    def ended(self) -> int:
        """How many the server has ended."""
        poll = select.poll()
        for each in self.connections:
            poll.register(each, select.POLLIN)
        return len(poll.poll(0))

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.connections:
            each.close()
