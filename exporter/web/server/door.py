# SPDX-License-Identifier: Apache-2.0
"""Accepts connections: counts each from the first moment, and makes room or refuses at a limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import Callable

from exporter.errors import OUT_OF_RESOURCES
from exporter.web.fairness import LOOPBACK, origin
from exporter.web.server.connection import Connection
from exporter.web.server.counts import Counts
from exporter.web.server.limits import Limits
from exporter.web.server.outlet import Backlog
from exporter.web.server.standing import makes_room, overdue
from exporter.web.server.terms import Access

ACCEPTS = 16
"""Connections accepted before the loop turns to something else."""
REST_SECONDS = 0.2
"""Pause of accepting while the process has no descriptor left."""

Connect = Callable[[str, Backlog, Callable[[Connection], None]], Connection]
"""Makes a connection of an origin, which shares the backlog, and says when it ended."""


class Door:
    """The listening socket and everyone who came in through it; for the event loop alone."""

    def __init__(
        self,
        listener: socket.socket,
        connect: Connect,
        limits: Limits,
        counts: Counts,
        access: Access | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take over the listening socket; without `access` everybody is served over plain HTTP."""
        listener.setblocking(False)
        self._listener = listener
        self._connect = connect
        self._limits = limits
        self._counts = counts
        self._access = access
        self._clock = clock
        self._backlog = Backlog(limits.unsent_bytes, self._unsent_is_too_much)
        self._guests: dict[Connection, asyncio.Task[None] | None] = {}
        """All who are in, with the task that lets them in."""
        self._outside: dict[Connection, socket.socket] = {}
        """Sockets that no transport owns yet."""
        self._of_address: Counter[str] = Counter()
        self._spare: int | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._is_open = False

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self._guests)

    # As uvicorn uses a server

    def open(self) -> None:
        """Begin to accept, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._take_spare()
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more, and end those that are still being let in."""
        if not self._is_open:
            return
        self._is_open = False
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        for guest in [guest for guest in self._guests if not guest.is_made]:
            self._end(guest)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it is open in."""
        return self._loop

    async def wait_closed(self) -> None:
        """Return at once: nothing is left after `close`."""

    def end_all(self) -> None:
        """End every connection, whatever is unsent."""
        for guest in list(self._guests):
            self._end(guest)

    # Once a second

    def sweep(self) -> None:
        """End everyone who is overdue."""
        now = self._clock()
        for guest in list(self._guests):
            try:
                reason = overdue(guest.look(), now, self._limits)
            except Exception as error:  # of one connection: it must not be the end of all others
                message = "a connection could not be looked at"
                context = {"message": message, "exception": error}
                self._loop.call_exception_handler(context)
                continue
            if reason is None:
                continue
            if reason == "handshake":
                self._counts.refuse_connection(reason)
            elif reason in ("head_timeout", "stalled"):
                self._counts.abort(reason)
            self._end(guest)

    # Whoever knocks

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                client, peer = self._listener.accept()
            except ConnectionAbortedError:
                continue
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    self._run_out()
                return
            self._admit(client, origin(str(peer[0])))

    def _run_out(self) -> None:
        """Let those who wait know at once, and accept nobody for a moment."""
        if self._spare is not None:
            os.close(self._spare)
            with contextlib.suppress(OSError):
                for _ in range(ACCEPTS):
                    self._listener.accept()[0].close()
                    self._counts.refuse_connection("descriptors")
            self._spare = None
        else:
            self._counts.refuse_connection("descriptors")
        self._take_spare()
        # One that waits may have the descriptor that the next one needs.
        self._make_room(None)
        self._loop.remove_reader(self._listener.fileno())
        self._rest = self._loop.call_later(REST_SECONDS, self._resume)

    def _take_spare(self) -> None:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _resume(self) -> None:
        self._rest = None
        if self._spare is None:
            self._take_spare()
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _admit(self, client: socket.socket, address: str) -> None:
        limits, refused = self._limits, None
        if self._is_limited(address) and not self._make_room(address):
            refused = "address_limit"
        elif len(self._guests) >= limits.connections and not self._make_room(None):
            refused = "limit"
        if refused is not None:
            self._counts.refuse_connection(refused)
            client.close()
            return
        client.setblocking(False)
        guest = self._connect(address, self._backlog, self._leave)
        self._of_address[address] += 1
        self._outside[guest] = client
        task = self._guests[guest] = self._loop.create_task(self._let_in(guest))
        task.add_done_callback(lambda task: self._is_in(guest, task))

    def _is_limited(self, address: str) -> bool:
        if self._of_address[address] < self._limits.connections_per_address:
            return False
        return self._limits.limit_loopback or address not in LOOPBACK

    def _make_room(self, address: str | None) -> bool:
        guest = makes_room(self._guests, self._clock(), self._limits, address)
        if guest is None:
            return False
        self._counts.abort("room")
        self._end(guest)
        return True

    async def _let_in(self, guest: Connection) -> None:
        context = None
        if self._access is not None:
            terms = await self._access.look()
            context = terms.context
            if context is not None and terms.problem is not None:
                self._counts.refuse_connection("web_config")
                return
            guest.terms = terms
        # The sweep ends a handshake that takes too long.
        timeout = None if context is None else self._limits.handshake_seconds + 5
        client = self._outside.pop(guest)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: guest, client, ssl=context, ssl_handshake_timeout=timeout
            )
        except OSError:  # as are the errors of TLS
            self._counts.refuse_connection("handshake")

    def _is_in(self, guest: Connection, task: asyncio.Task[None]) -> None:
        if guest in self._guests:
            self._guests[guest] = None
        client = self._outside.pop(guest, None)
        if client is not None:
            client.close()
        if not guest.is_made:
            self._leave(guest)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            task.get_loop().call_exception_handler(
                {"message": "a connection was not let in", "exception": error}
            )

    def _end(self, guest: Connection) -> None:
        task = self._guests.get(guest)
        self._leave(guest)
        if task is not None and not guest.is_made:
            task.cancel()
        guest.end()

    def _leave(self, guest: Connection) -> None:
        if guest in self._guests:
            del self._guests[guest]
            self._of_address[guest.address] -= 1
            if not self._of_address[guest.address]:
                del self._of_address[guest.address]

    # What is unsent

    def _unsent_is_too_much(self) -> None:
        self._loop.call_soon(self._relieve)

    def _relieve(self) -> None:
        """End those that hold back large answers, the longest stuck first, until it is enough."""
        while self._backlog.is_too_much:
            holders = [guest for guest in self._guests if guest.holds_body]
            if not holders:
                return
            self._counts.abort("room")
            self._end(min(holders, key=lambda guest: guest.look().progressed))
