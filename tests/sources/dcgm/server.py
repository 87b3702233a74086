# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server in the place of a dcgm-exporter."""

from __future__ import annotations

import http.client
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


def answered(body: bytes, headers: Mapping[str, str] = TEXT, status: str = "200 OK") -> bytes:
    """An answer in HTTP."""
    lines = {**headers, "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


class Server(socketserver.ThreadingTCPServer):
    """Answers with whatever `answer` is at the time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/metrics"
        self.answer: bytes | Callable[[], Iterable[bytes]] = b""
        """The same to every request, or the pieces of each."""
        self.seen: list[dict[str, str]] = []
        """The headers of each request, and its path."""


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Server)
        _, path, *version = self.rfile.readline().split() or (b"", b"")
        if version != [b"HTTP/1.1"]:
            return
        self.server.seen.append(
            {**dict(http.client.parse_headers(self.rfile)), "path": path.decode()}
        )
        answer = self.server.answer
        with suppress(OSError):
            for piece in [answer] if isinstance(answer, bytes) else answer():
                self.wfile.write(piece)


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
