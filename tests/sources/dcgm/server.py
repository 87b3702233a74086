# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server in the place of a dcgm-exporter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Answer:
    """What the server answers to every request."""

    body: bytes | Callable[[BaseHTTPRequestHandler], None] = b""
    """A function writes the answer itself, from the status line on."""
    status: int = 200
    headers: dict[str, str] = field(
        default_factory=lambda: {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    )


def plain(text: str) -> Answer:
    """A page."""
    return Answer(text.encode())


def raw(data: bytes) -> Answer:
    """These bytes, in place of an answer in HTTP."""

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(data)

    return Answer(write)


class Server:
    """Answers with whatever `answer` is at the time."""

    def __init__(self, port: int = 0) -> None:
        self.answer: Answer | Callable[[], Answer] = Answer()
        """The same to every request, or another one to each."""
        self.seen: list[dict[str, str]] = []
        """The headers of each request, and its path."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.seen.append({**dict(self.headers.items()), "path": self.path})
                answer = server.answer if isinstance(server.answer, Answer) else server.answer()
                if not isinstance(answer.body, bytes):
                    answer.body(self)
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@contextmanager
def serving(port: int = 0) -> Iterator[Server]:
    server = Server(port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
