# SPDX-License-Identifier: Apache-2.0
"""Listens, and serves until it is told to stop; ends what has timed out, once a second."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from exporter.errors import ExporterError, out_of_resources
from exporter.web.server.counts import Counts
from exporter.web.server.limits import Limits, timed_out
from exporter.web.server.protocol import Acceptor, Connection

if TYPE_CHECKING:  # loaded only where there is a file
    from exporter.web.access.reload import WebConfigWatcher

NOSNIFF = (b"x-content-type-options", b"nosniff")
GRACE_SECONDS = 1.0
"""Answers under way have so long when it is to stop."""
SWEEP_SECONDS = 1.0
BACKLOG = 64
RECEIVE_BYTES = 32 * 1024
"""The kernel doubles it. What a client sends ahead stays in the kernel, which counts it as ours."""
UNSENT_BYTES = 64 * 1024
"""What the kernel takes of an answer beyond what is on its way to the client."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise ExporterError; without a host on every address."""
    try:
        listener = _bound(host, port)
    except OSError as error:
        # Its own text repeats the address; the resolver's does not, and its numbers are its own.
        if isinstance(error, socket.gaierror):
            reason = error.strerror
        else:
            reason = os.strerror(error.errno) if error.errno else str(error)
        raise ExporterError(f"cannot listen on {host or '*'}:{port}: {reason}") from error
    # asyncio would set it only on sockets made with an explicit protocol; without it the body of an
    # answer waits 40 ms for the client's delayed ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    with contextlib.suppress(OSError):  # some sandboxes do not have it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    return listener


def _bound(host: str, port: int) -> socket.socket:
    if host:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name may have both kinds of address, then IPv4. It is looked up once.
        family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        return socket.create_server(address, family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 may be switched off
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
    return socket.create_server(("", port), backlog=BACKLOG)


class Server:
    """An HTTP server for one ASGI application."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        *,
        limits: Limits,
        counts: Counts,
        config: WebConfigWatcher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.acceptor = Acceptor(app, limits, counts, clock, config)
        self.started = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._listener = listener
        self._looking: asyncio.Task[object] | None = None
        self._stop = asyncio.Event()

    def run(self) -> None:
        """Serve until `request_stop`."""
        asyncio.run(self._serve())

    def request_stop(self) -> None:
        """End serving; may be called from a signal handler, also before serving began."""
        self.acceptor.is_stopping = True
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self.loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self._count_or_log)
        self._tick(self.loop)
        server = await self.loop.create_server(
            lambda: Connection(self.acceptor), sock=self._listener, backlog=BACKLOG
        )
        self.started = True
        if not self.acceptor.is_stopping:
            await self._stop.wait()
        server.close()
        for connection in list(self.acceptor.connections):
            connection.stop()
        deadline = time.monotonic() + GRACE_SECONDS
        while self.acceptor.connections and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(self.acceptor.connections):
            connection.abort()
        await asyncio.sleep(0)  # they are told at the next turn of the loop

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        # A timer without a task, and due again before anything in it can fail.
        loop.call_later(SWEEP_SECONDS, self._tick, loop)
        if self.acceptor.config is not None:  # for those that are kept
            self._looking = loop.create_task(self._look(self.acceptor.config))
        self.sweep()

    async def _look(self, config: WebConfigWatcher) -> None:
        with contextlib.suppress(Exception):  # the next connection logs it
            await config.look()

    def sweep(self) -> None:
        """End the connections that have timed out; set the Date of answers."""
        self.acceptor.headers = [(b"date", formatdate(usegmt=True).encode()), NOSNIFF]
        now = self.acceptor.clock()
        for connection in list(self.acceptor.connections):
            reason = timed_out(connection.measure(), now, self.acceptor.limits)
            if reason is None:
                continue
            if reason == "handshake":
                self.acceptor.counts.connections_refused[reason] += 1
            elif reason in ("head_timeout", "stalled"):
                self.acceptor.counts.requests_aborted[reason] += 1
            connection.abort()
        self._disconnect_slow_readers()

    def _disconnect_slow_readers(self) -> None:
        """While unsent answers take too much memory, abort those that were read least recently."""
        unsent = [each for each in self.acceptor.connections if each.unsent_body]
        readers = Counter(id(each.unsent_body) for each in unsent)
        size = sum({id(each.unsent_body): len(each.unsent_body) for each in unsent}.values())
        latest = self.acceptor.clock() - self.acceptor.limits.unsent_seconds
        for each in sorted(unsent, key=lambda each: each.activity.progressed):
            if size <= self.acceptor.limits.unsent_bytes or each.activity.progressed > latest:
                return
            readers[id(each.unsent_body)] -= 1
            if not readers[id(each.unsent_body)]:
                size -= len(each.unsent_body)
            self.acceptor.counts.requests_aborted["room"] += 1
            each.abort()

    def _count_or_log(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "socket" in context and isinstance(error, OSError) and out_of_resources(error):
            # asyncio retries in a second.
            self.acceptor.counts.connections_refused["descriptors"] += 1
        else:
            loop.default_exception_handler(context)
