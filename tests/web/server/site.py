# SPDX-License-Identifier: Apache-2.0
"""A server with a small application, on a real port, whose clock and sweep a test moves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.model.daemon import Daemon
from exporter.web.access.reload import WebConfigWatcher
from exporter.web.server.counts import Counts
from exporter.web.server.limits import Limits
from exporter.web.server.protocol import Connection
from exporter.web.server.server import Server, listen
from tests.waiting import wait_until

LARGE = bytes(range(256)) * 4 * 4096
"""4 MiB: more than the kernel takes from a server whose client does not read."""
GET = b"GET %b HTTP/1.1\r\nHost: node\r\n\r\n"


class Site:
    """Answers with the path, with `LARGE`, with a stream, or not before it is released."""

    def __init__(
        self, limits: Limits | None = None, config: WebConfigWatcher | None = None
    ) -> None:
        self.counts = Counts()
        self.limits = limits or Limits()
        self.scopes: list[Scope] = []
        self.released = threading.Event()
        self._shift = 0.0
        listener = listen("127.0.0.1", 0)
        self.port: int = listener.getsockname()[1]
        self.server = Server(
            self.app(),
            listener,
            limits=self.limits,
            counts=self.counts,
            config=config,
            clock=lambda: time.monotonic() + self._shift,
        )
        self._thread = threading.Thread(target=self.server.run)

    @contextlib.contextmanager
    def open(self) -> Iterator[Site]:
        """Serve until the end of the block."""
        self._thread.start()
        try:
            wait_until(lambda: self.server.started)
            yield self
        finally:
            self.released.set()
            self.server.request_stop()
            self._thread.join()

    def wait(self) -> None:
        """Wait until it has stopped."""
        self._thread.join(10)
        assert not self._thread.is_alive()

    def app(self) -> ASGIApp:
        """Return the application that is served."""
        return self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        path = scope["path"]
        body = LARGE if path == "/large" else f"{scope['method']} {path}\n".encode()
        if path == "/own":
            body = bytes(LARGE)[:-1] + b"\n"
        if path == "/broken":
            raise RuntimeError("a mistake")
        while path == "/slow" and not self.released.is_set():
            await asyncio.sleep(0.01)
        headers = [] if path == "/stream" else [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if path == "/stream":
            while (await receive())["type"] != "http.disconnect" and not self.released.is_set():
                await send({"type": "http.response.body", "body": LARGE, "more_body": True})
        await send({"type": "http.response.body", "body": body})

    @property
    def connections(self) -> list[Connection]:
        """The open connections of the server."""
        return list(self.server.acceptor.connections)

    @property
    def count(self) -> Daemon:
        return self.counts.read()

    def sweep(self, seconds: float = 0.0) -> None:
        """Move the clock by so much, then sweep."""
        done: Future[None] = Future()

        def run() -> None:
            self._shift += seconds
            self.server.sweep()
            done.set_result(None)

        assert self.server.loop is not None
        self.server.loop.call_soon_threadsafe(run)
        done.result(10)

    def connect(self, data: bytes = b"", address: str = "127.0.0.1") -> Client:
        """Return a connection that has sent this."""
        return Client(self.port, data, address)

    def ask(self, data: bytes) -> bytes:
        """Send this; return all that is received until the end."""
        with self.connect(data) as client:
            return client.rest()


class Client:
    """A connection; nothing is read before a test does."""

    def __init__(self, port: int, data: bytes, address: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 5, source_address=(address, 0))
        self.send(data)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def rest(self) -> bytes:
        """Read to the end."""
        parts = []
        while part := self.socket.recv(1 << 20):
            parts.append(part)
        return b"".join(parts)

    def answer(self) -> bytes:
        """Read one answer that states its length."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        [length] = [
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"content-length" in line
        ]
        while len(body) < length:
            body += self._more()
        return head + b"\r\n\r\n" + body

    def _more(self) -> bytes:
        data = self.socket.recv(1 << 20)
        assert data, "the server ended the connection"
        return data

    @property
    def is_open(self) -> bool:
        """False once the server has ended the connection; what it sent before is lost."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(1 << 20):
                pass
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            self.socket.settimeout(5)
        return False
