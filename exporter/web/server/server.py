# SPDX-License-Identifier: Apache-2.0
"""uvicorn's server with a door of its own; it sweeps once a second and is ended by a call."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from asyncio import sslproto
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from exporter.web.server.connection import Connection
from exporter.web.server.counts import Counts
from exporter.web.server.door import Door
from exporter.web.server.limits import Limits
from exporter.web.server.loop_errors import LoopErrors
from exporter.web.server.outlet import Backlog
from exporter.web.server.terms import Access

NOSNIFF = ("x-content-type-options", "nosniff")
GRACE_SECONDS = 1.0
"""Answers under way have so long when it is to stop."""
SWEEP_SECONDS = 1.0
TLS_BUFFER_BYTES = 32 * 1024
"""asyncio's own, of each connection, is 256 kB."""


class Server(uvicorn.Server):
    """Serves until `request_stop`.

    uvicorn's own signal handling would end the process by the signal itself, and its loop wakes
    ten times a second to look whether it should end, which costs a fifth of an idle daemon's time.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        *,
        limits: Limits,
        counts: Counts,
        access: Access | None = None,
        end_streams: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,  # log.setup() does it
            server_header=False,
            headers=[NOSNIFF],
            lifespan="off",
            interface="asgi3",
            loop="asyncio",
            http="httptools",
            ws="none",
            proxy_headers=False,  # who is asked for is decided by the connection alone
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._limits = limits
        self._counts = counts
        self._clock = clock
        self._end_streams = end_streams
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self.door = Door(listener, self._connection, limits, counts, access, clock)

    def _connection(
        self, address: str, backlog: Backlog, on_end: Callable[[Connection], None]
    ) -> Connection:
        return Connection(
            self.config,
            self.server_state,
            address=address,
            limits=self._limits,
            counts=self._counts,
            backlog=backlog,
            clock=self._clock,
            on_end=on_end,
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the caller."""
        yield

    def request_stop(self) -> None:
        """End serving; may be called from a signal handler, also before serving began."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stop.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the door."""
        asyncio.get_running_loop().set_exception_handler(LoopErrors())
        tls: Any = sslproto.SSLProtocol
        if hasattr(tls, "max_size"):  # Python 3.10 has no buffer of its own
            tls.max_size = TLS_BUFFER_BYTES
        self.door.open()
        self.servers: list[Any] = [self.door]
        self.started = True

    async def main_loop(self) -> None:
        """Wait for the end; once a second refresh the Date header and end who is overdue."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            self.door.sweep()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), SWEEP_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which would never end by themselves, then all others, soon."""
        self._end_streams()
        self.door.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        deadline = time.monotonic() + GRACE_SECONDS
        while self.server_state.connections and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self.door.end_all()
        await super().shutdown(sockets)
