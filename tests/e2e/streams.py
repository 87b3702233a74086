# SPDX-License-Identifier: Apache-2.0
"""A viewer of the live view on a plain socket."""

from __future__ import annotations

import socket
import time

REQUEST = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


class StreamClient:
    """One open stream; what comes is kept as it came."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(REQUEST)
        self.data = b""

    def read_for(self, seconds: float) -> bytes:
        """Read for so long, or until the server ends the stream; return what came in this time."""
        deadline, before = time.monotonic() + seconds, len(self.data)
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(65536)
            except TimeoutError:
                break
            if not chunk:
                break
            self.data += chunk
        return self.data[before:]

    def read_until(self, what: bytes, seconds: float = 10.0) -> None:
        """Read until something came."""
        deadline = time.monotonic() + seconds
        while what not in self.data:
            assert time.monotonic() < deadline, f"no {what!r} in {self.data[-500:]!r}"
            self.read_for(0.05)

    def read_to_end(self, seconds: float = 5.0) -> None:
        """Read until the server closes the connection."""
        self._socket.settimeout(seconds)
        while chunk := self._socket.recv(65536):
            self.data += chunk

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
