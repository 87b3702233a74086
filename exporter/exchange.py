# SPDX-License-Identifier: Apache-2.0
"""Send a request over a socket and read the response, within one deadline and a size limit."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


class TooMuch(ValueError):
    """The response exceeds the size limit."""


class Deadline:
    """The time by which the response has to be complete."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Return how many seconds are left; raise TimeoutError if none are."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class _Limited(io.RawIOBase):
    """Reads from a socket until a deadline, and no more than so many bytes."""

    def __init__(self, connected: socket.socket, deadline: Deadline, most_bytes: int) -> None:
        self._socket = connected
        self._deadline = deadline
        self._left = most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._socket.settimeout(self._deadline.left())
        count = self._socket.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise TooMuch("more than an answer may have")
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the reader that HTTPResponse needs."""
        return io.BufferedReader(self)


def connected(
    host: str, port: int, deadline: Deadline, context: ssl.SSLContext | None = None
) -> socket.socket:
    """Return a socket to the host's first address that accepts, over TLS with a `context`."""
    problem = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        opened = socket.socket(family, kind, protocol)
        try:
            opened.settimeout(deadline.left())
            opened.connect(address)
        except OSError as error:
            opened.close()
            problem = error
            continue
        if context is None:
            return opened
        opened.settimeout(deadline.left())
        return context.wrap_socket(opened, server_hostname=host)
    raise problem


def roundtrip(
    opened: socket.socket, request: bytes, deadline: Deadline, most_bytes: int
) -> http.client.HTTPResponse:
    """Send a GET and return the head of the response; the caller reads the body and closes it.

    The deadline and `most_bytes` hold for head and body together.

    Raises:
        OSError: no response in time.
        http.client.HTTPException: the response is not HTTP.
        TooMuch: the response is too long; also while the body is read.
    """
    opened.settimeout(deadline.left())
    opened.sendall(request)
    limited = _Limited(opened, deadline, most_bytes)
    response = http.client.HTTPResponse(limited, method="GET")  # type: ignore[arg-type]
    try:
        response.begin()
    except BaseException:
        response.close()  # else Python 3.13 complains on stderr when it is collected
        raise
    return response


def get_lines(path: str, host: str, port: int, headers: dict[str, str]) -> bytes:
    """Return the head of a GET that asks to close the connection after the response."""
    lines = {
        "Host": f"{f'[{host}]' if ':' in host else host}:{port}",
        "User-Agent": "roofline-exporter",
        **headers,
        "Connection": "close",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"GET {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace")
