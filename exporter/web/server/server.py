# SPDX-License-Identifier: Apache-2.0
"""Serves until it is told to stop; ends connections that have timed out, once a second."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from exporter.errors import out_of_resources
from exporter.web.server.counts import Counts
from exporter.web.server.limits import Limits
from exporter.web.server.listener import BACKLOG
from exporter.web.server.protocol import Acceptor, Connection
from exporter.web.server.timeouts import timed_out

if TYPE_CHECKING:  # loaded only where there is a file
    from exporter.web.access.reload import WebConfigWatcher

NOSNIFF = (b"x-content-type-options", b"nosniff")
GRACE_SECONDS = 1.0
"""Answers under way have so long when it is to stop."""
SWEEP_SECONDS = 1.0


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
            self.acceptor.counts.connections_refused["descriptors"] += (
                1  # asyncio retries in a second
            )
        else:
            loop.default_exception_handler(context)
