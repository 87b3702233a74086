# SPDX-License-Identifier: Apache-2.0
"""One connection: reads one request at a time, runs the ASGI application, sends its answer."""

from __future__ import annotations

import asyncio
import fcntl
import http
import ssl
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from starlette.types import ASGIApp

from exporter.web.fairness import origin
from exporter.web.server.counts import Counts
from exporter.web.server.exchange import Exchange
from exporter.web.server.limits import Activity, Limits, Phase
from exporter.web.server.request_framing import Request, RequestRefused, head_bytes, take_head
from exporter.web.server.tls import TlsSession

if TYPE_CHECKING:  # loaded only where there is a file
    from exporter.web.access.reload import ActiveConfig, WebConfigWatcher

METHODS = frozenset({"GET", "HEAD"})
PIECE_BYTES = 64 * 1024
"""An answer is written in such pieces; the rest stays the application's own bytes, uncopied."""


@dataclass
class Acceptor:
    """The state shared by all connections; used in the event loop only."""

    app: ASGIApp
    limits: Limits
    counts: Counts
    clock: Callable[[], float]
    config: WebConfigWatcher | None = None
    """None: plain HTTP without passwords."""
    is_stopping: bool = False
    connections: set[Connection] = field(default_factory=set)
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Of every answer."""


class Connection(asyncio.Protocol):
    """One client."""

    address = ""
    """Of the client, as `origin` returns it; set by `connection_made`."""
    unsent_body = b""
    """The answer that is being sent, if it has more than one piece."""
    _transport: asyncio.Transport

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._limits = acceptor.limits
        now = acceptor.clock()
        self.activity = Activity(Phase.HANDSHAKE, now, progressed=now)
        self._tls: TlsSession | None = None
        self._config: ActiveConfig | None = None
        """The web configuration when it was accepted."""
        self._received = bytearray()
        self._has_ended = False
        """Whether the client sends no more; it may still read."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._written_bytes = self._taken_bytes = self._discarded_bytes = 0
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        """The event loop keeps no reference to it."""

    def enter(self, phase: Phase) -> None:
        """Begin a phase; when it is the last, tell the application."""
        self.activity.phase = phase
        self.activity.since = self._acceptor.clock()
        if phase is Phase.CLOSING and self._exchange is not None:
            self._exchange.end()

    # The server calls these.

    def measure(self) -> Activity:
        """Return the activity, updated by what the client has acknowledged."""
        activity = self.activity
        if activity.phase is Phase.STREAMING and self._exchange is not None:
            if self._has_ended:  # a client that closed its side does not read a stream
                self.abort()
            elif self._is_last_answer():
                self._exchange.is_ending.set()
        unsent = self._transport.get_write_buffer_size() + _unacknowledged_bytes(self._transport)
        taken = self._written_bytes - unsent
        if taken != self._taken_bytes or not unsent:
            activity.progressed = self._acceptor.clock()
        activity.unsent_bytes, self._taken_bytes = unsent, taken
        return activity

    def stop(self) -> None:
        """End it once its answer is sent; end a stream."""
        if self._exchange is None:
            self._close()
        elif self.activity.phase is Phase.STREAMING:
            self._exchange.is_ending.set()

    def abort(self) -> None:
        """End it at once, whatever is unsent."""
        self.enter(Phase.CLOSING)
        self._acceptor.connections.discard(self)
        self._transport.abort()

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection; at the limit, refuse."""
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=0)
        self.address = origin(str(transport.get_extra_info("peername")[0]))
        others, config = self._acceptor.connections, self._acceptor.config
        of_address = sum(other.address == self.address for other in others)
        if len(others) >= self._limits.connections:
            self._reject("limit")
        elif of_address >= self._limits.connections_per_address:
            self._reject("address_limit")
        else:
            others.add(self)
            if config is None:
                self.enter(Phase.HEAD)
            else:
                transport.pause_reading()
                self._task = asyncio.get_running_loop().create_task(self._configure(config))

    async def _configure(self, watcher: WebConfigWatcher) -> None:
        """Accept as the web configuration says now."""
        try:
            self._config = config = await watcher.look()
        except Exception as error:
            _log("a connection was not accepted", error)
            self.abort()
            return
        if self.activity.phase is Phase.CLOSING:
            return
        if config.context is None:
            self.enter(Phase.HEAD)
        elif config.problem is not None:
            self._reject("web_config")
        else:
            self._tls = TlsSession(config.context, self._write)
        self._transport.resume_reading()
        if self._received:  # Python 3.10 reads although it was told to pause
            received, self._received = bytes(self._received), bytearray()
            self.data_received(received)

    def _reject(self, reason: str) -> None:
        self._acceptor.counts.connections_refused[reason] += 1
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the application that the client has gone."""
        self._acceptor.connections.discard(self)
        if self.activity.phase is Phase.HANDSHAKE:
            self._acceptor.counts.connections_refused["handshake"] += 1
        self.enter(Phase.CLOSING)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Begin a request; while one is being answered, pause reading."""
        if self.activity.phase is Phase.CLOSING:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > self._limits.discarded_bytes:
                self.abort()
            return
        if self._tls is not None:
            data = self._decrypt(self._tls, data)
        self._received += data
        if self._exchange is None:
            self._read_request()
        elif self._received:
            self._transport.pause_reading()
        if self._tls is not None and self._tls.is_ended and not self.eof_received():
            self._close()

    def _decrypt(self, tls: TlsSession, data: bytes) -> bytes:
        was_established = tls.is_established
        try:
            data = tls.received(data)
        except ssl.SSLError:
            if not was_established:
                self._acceptor.counts.connections_refused["handshake"] += 1
            self._close()
            return b""
        if tls.is_established and not was_established:
            if self._config is None or not self._config.admit(tls.client_certificate):
                self._reject("client_name")
                return b""
            self.enter(Phase.HEAD)
        return data

    def eof_received(self) -> bool:
        """Keep the connection open for the answers that are due."""
        self._has_ended = True
        return self._exchange is not None

    def pause_writing(self) -> None:
        """Have the answer wait for the client."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Go on with the answer."""
        self._writable.set()

    # Requests

    def _read_request(self) -> None:
        """Begin the next request if its head is complete."""
        if self.activity.phase in (Phase.HANDSHAKE, Phase.CLOSING):
            return
        try:
            head = take_head(self._received, self._limits)
            if head is not None:
                self._begin(Request(head, self._limits))
            elif self._received and self.activity.phase is Phase.IDLE:
                self.enter(Phase.HEAD)
        except RequestRefused as refusal:
            self._acceptor.counts.refuse_request(refusal.reason)
            phrase = http.HTTPStatus(refusal.status).phrase
            self._fail(refusal.status, f"{phrase}: {refusal}\n".encode("latin-1", "replace"))

    def _begin(self, request: Request) -> None:
        if request.method not in METHODS:
            self._acceptor.counts.refuse_request("malformed")
        self.enter(Phase.ANSWERING)
        if self._received:
            self._transport.pause_reading()
        addresses = map(self._transport.get_extra_info, ("sockname", "peername"))
        scope = request.scope("http" if self._tls is None else "https", *addresses)
        headers, stream = self._acceptor.headers, partial(self.enter, Phase.STREAMING)
        self._exchange = Exchange(request, headers, self.write, self._is_last_answer, stream)
        self._task = asyncio.get_running_loop().create_task(self._answer(self._exchange, scope))

    async def _answer(self, exchange: Exchange, scope: dict[str, Any]) -> None:
        """Run the application, then go on with the next request."""
        try:
            await self._acceptor.app(scope, exchange.receive, exchange.send)
        except Exception as error:
            _log("a request could not be answered", error)
        self._exchange = None
        if self.activity.phase is Phase.CLOSING:  # it was lost meanwhile
            return
        if not exchange.is_started:
            self._fail(500, b"Internal Server Error")
        elif not exchange.is_complete:
            self.abort()
        elif not exchange.request.keeps_alive or self._is_last_answer():
            self._close()
        else:
            self.enter(Phase.IDLE)
            self._read_request()
            if self._exchange is None and self._has_ended:
                self._close()
            elif not self._has_ended and not (self._exchange and self._received):
                self._transport.resume_reading()

    def _fail(self, status: int, text: bytes) -> None:
        """Answer with an error, and end."""
        headers = [
            *self._acceptor.headers,
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        ]
        self._write_now(head_bytes(status, headers) + text)
        self._close()

    # Answers

    async def write(self, head: bytes, body: bytes) -> None:
        """Send this; return once the kernel has all of it, or the client has gone."""
        self.activity.writing_since = self._acceptor.clock()
        self.unsent_body = body if len(body) > PIECE_BYTES else b""
        pieces = memoryview(body)
        for start in range(0, max(1, len(body)), PIECE_BYTES):
            piece = pieces[start : start + PIECE_BYTES]
            self._write_now(head + piece if head else piece)
            head = b""
            await self._writable.wait()
            if self.activity.phase is Phase.CLOSING:
                break
        self.unsent_body = b""
        self.activity.writing_since = None

    def _is_last_answer(self) -> bool:
        """Whether no request may follow: the daemon stops, or its configuration has changed."""
        watcher, config = self._acceptor.config, self._config
        is_old = watcher and config and watcher.active.generation != config.generation
        return self._acceptor.is_stopping or bool(is_old)

    def _write_now(self, data: bytes | memoryview) -> None:
        if self._tls is None:
            self._write(data)
        else:
            self._tls.write(data)

    def _write(self, data: bytes | memoryview) -> None:
        self._written_bytes += len(data)
        self._transport.write(data)

    def _close(self) -> None:
        """Send no more; the connection ends when the client ends its side, or after a moment."""
        self.enter(Phase.CLOSING)
        if self._transport.is_closing():
            return
        if self._tls is not None:
            self._tls.close()
        if self._has_ended or self._acceptor.is_stopping:
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # it is not connected any more
            self._transport.abort()
        self._transport.resume_reading()


def _log(message: str, error: Exception) -> None:
    """Log an error that clients may cause: asyncio's logger has a limited number of lines."""
    context = {"message": message, "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)


def _unacknowledged_bytes(transport: asyncio.Transport) -> int:
    """Return how many bytes the kernel has that the peer did not acknowledge."""
    try:
        descriptor = transport.get_extra_info("socket").fileno()
        found = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    number: int = struct.unpack("i", found)[0]
    return number
