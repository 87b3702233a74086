# SPDX-License-Identifier: Apache-2.0
"""Sends answers: at once what the client takes, then one piece after another.

What is not sent yet stays a view of the answer, which all scrapers of a page share. So a client
that does not read costs one piece and no copy of the page.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

PIECE_BYTES = 64 * 1024


def close_once(transport: asyncio.BaseTransport) -> None:
    """Close it unless it is closing: closed again, one with TLS can be neither asked nor ended."""
    if not transport.is_closing():
        transport.close()


class Backlog:
    """The answers that are not sent whole yet; one that several connections send counts once."""

    def __init__(self, most_bytes: int, too_much: Callable[[], None]) -> None:
        """Take how much is enough, and whom to call when it is more."""
        self._most_bytes = most_bytes
        self._too_much = too_much
        self._bytes = 0
        self._senders: dict[int, int] = {}
        """How many connections send it, by the identity of its bytes."""

    @property
    def is_too_much(self) -> bool:
        """True while there is more than enough."""
        return self._bytes > self._most_bytes

    def add(self, body: bytes) -> None:
        """Note that one more connection sends this."""
        senders = self._senders.get(id(body), 0)
        self._senders[id(body)] = senders + 1
        if not senders:
            self._bytes += len(body)
            if self.is_too_much:
                self._too_much()

    def remove(self, body: bytes) -> None:
        """Note that one connection is done with this."""
        senders = self._senders.pop(id(body)) - 1
        if senders:
            self._senders[id(body)] = senders
        else:
            self._bytes -= len(body)


class Outlet:
    """Stands before a transport: takes a whole answer, and hands it on as far as it goes."""

    def __init__(self, transport: asyncio.Transport, backlog: Backlog) -> None:
        self._transport = transport
        self._backlog = backlog
        self._head: bytes | None = None
        self._starts = False
        self._pending: deque[memoryview] = deque()
        self._bodies: list[bytes] = []
        self._closing = False
        self.written_bytes = 0
        self.is_full = False
        """Whether the transport has bytes that the kernel did not take; to be set by its owner."""

    def open(self) -> None:
        """Have the transport say from now on, and at once, when it is full."""
        # That is from the first byte on; over TLS it would be full even with none.
        is_plain = self._transport.get_extra_info("sslcontext") is None
        self._transport.set_write_buffer_limits(high=0 if is_plain else 1, low=0)

    @property
    def is_empty(self) -> bool:
        """True once the kernel has all that was written."""
        return not self._pending and not self.is_full and self._head is None

    @property
    def unsent_bytes(self) -> int:
        """How many bytes the kernel did not take yet."""
        waiting = sum(len(view) for view in self._pending)
        return waiting + self._transport.get_write_buffer_size()

    @property
    def holds_body(self) -> bool:
        """True while a part of more than one piece is not handed on."""
        return bool(self._bodies)

    def begin(self) -> None:
        """Expect the head of an answer, which is sent together with what follows it."""
        self._starts = True

    def write(self, data: bytes) -> None:
        """Send this after all else."""
        if self._starts:
            self._starts = False
            self._head = data
        elif self._head is not None:
            head, self._head = self._head, None
            self._send(head, data)
        elif data:
            self._send(b"", data)

    def flush(self) -> None:
        """Send a head that nothing follows."""
        if self._head is not None:
            head, self._head = self._head, None
            self._send(head)

    def _send(self, head: bytes, body: bytes = b"") -> None:
        """Hand on the head together with the first piece of the body, then the rest."""
        if self._transport.is_closing():
            return
        self.written_bytes += len(head) + len(body)
        first = max(0, PIECE_BYTES - len(head)) if head else 0
        if first:
            self._pending.append(memoryview(head + body[:first]))
        if len(body) > first:
            self._pending.append(memoryview(body)[first:])
        if len(body) > PIECE_BYTES:
            self._backlog.add(body)
            self._bodies.append(body)
        self.go_on()

    def go_on(self) -> None:
        """Hand on as much as the transport takes; to be called whenever that may be more."""
        pending, transport = self._pending, self._transport
        while pending and not self.is_full and not transport.is_closing():
            view = pending.popleft()
            if len(view) > PIECE_BYTES:
                pending.appendleft(view[PIECE_BYTES:])
            transport.write(view[:PIECE_BYTES])
        if pending:
            return
        self._forget()
        if self._closing:
            close_once(transport)

    def _forget(self) -> None:
        for body in self._bodies:
            self._backlog.remove(body)
        self._bodies.clear()

    def close(self) -> None:
        """End the connection once all is handed on."""
        self.flush()
        self._closing = True
        if not self._pending:
            close_once(self._transport)

    def is_closing(self) -> bool:
        """Return whether nothing more can be written."""
        return self._closing or self._transport.is_closing()

    def drop(self) -> None:
        """Forget what is unsent: the connection is gone."""
        self._pending.clear()
        self._head = None
        self._forget()
