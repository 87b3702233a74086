# SPDX-License-Identifier: Apache-2.0
"""Scrapes an exporter as Prometheus does, at the least cost of its own, and times it."""

from __future__ import annotations

import gzip
import socket
import time
from dataclasses import dataclass

TIMEOUT_SECONDS = 10.0
# What Prometheus 3 sends by default.
HEADERS = (
    "Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\n"
    "Accept-Encoding: gzip\r\n"
    "User-Agent: Prometheus/3.5.0\r\n"
    "X-Prometheus-Scrape-Timeout-Seconds: 1\r\n"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One scrape: how long until its last byte was here, and what it brought."""

    seconds: float
    status: int
    headers: dict[str, str]
    body: bytes

    def text(self) -> str:
        """Return the page."""
        zipped = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.body) if zipped else self.body).decode()


class Scraper:
    """Keeps the connection as Prometheus does; opens it again where the server closes it.

    A plain socket with a ready request: a Python HTTP client would cost more than the answer.
    """

    def __init__(self, port: int, path: str = "/metrics") -> None:
        self._port = port
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{HEADERS}\r\n".encode()
        self._connection: socket.socket | None = None
        self.connections = 0

    def scrape(self) -> Answer:
        """Return the answer to one scrape; its time includes connecting where that was needed.

        Raises:
            OSError: nobody listens, or the answer was cut off.
        """
        started = time.perf_counter()
        connection = self._connection
        if connection is None:
            connection = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
            self.connections += 1
        connection.sendall(self._request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._received(connection)
        head, _, body = data.partition(b"\r\n\r\n")
        status, headers = _parsed(head)
        length = int(headers["content-length"])
        while len(body) < length:
            body += self._received(connection)
        seconds = time.perf_counter() - started
        if not _stays_open(head, headers):
            self.close()
        return Answer(seconds, status, headers, body)

    def _received(self, connection: socket.socket) -> bytes:
        data = connection.recv(1 << 20)
        if not data:
            self.close()
            message = f"the answer from port {self._port} was cut off"
            raise ConnectionError(message)
        return data

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


def _stays_open(head: bytes, headers: dict[str, str]) -> bool:
    wish = headers.get("connection", "").lower()
    return wish != "close" and (head.startswith(b"HTTP/1.1") or wish == "keep-alive")
