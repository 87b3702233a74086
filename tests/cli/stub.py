# SPDX-License-Identifier: Apache-2.0
"""Servers with canned answers, in the place of a daemon or a Prometheus."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate

NOBODY = "http://127.0.0.1:1"
"""Where nobody listens."""


@contextmanager
def speaking(speak: Callable[[socket.socket], object], connections: int = 1) -> Iterator[str]:
    """A server that answers so many connections with anything; gives its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            for _ in range(connections):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    speak(connection)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


class Stub(http.server.ThreadingHTTPServer):
    """Answers every request, and counts them."""

    daemon_threads = True
    status, body, asked = 200, b"", 0
    now: float | None = None
    """The Unix time in the Date header; None for this machine's."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        return self.status, self.body


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Stub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked += 1
        status, body = self.server.answer(self)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    do_PATCH = do_POST = do_DELETE = do_GET

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(self.server.now, usegmt=True)

    def log_message(self, format: str, *args: object) -> None:
        pass
