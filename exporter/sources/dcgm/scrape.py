# SPDX-License-Identifier: Apache-2.0
"""One GET of a page, with a limit for all of its time and for its size."""

from __future__ import annotations

import base64
import http.client
import io
import socket
import ssl
import time
import zlib
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PAGE = "/metrics"
MOST_BYTES = 4_000_000
"""Of a page, compressed or not. A node with 16 GPUs and a long list of metrics has a tenth."""
TOTAL_SECONDS = 1.0
BROKEN = "its answer is not HTTP, or ends too early"

_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class ScrapeFailed(Exception):
    """The page cannot be had; the reason in one line, without anything that the server sent."""


class NothingThere(ScrapeFailed):
    """Nothing listens at the address, or nothing that can be reached."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a page is, and what opens it."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)


class _Limited(io.RawIOBase):
    """Reads from a socket until a deadline, and no more than so many bytes."""

    def __init__(self, connected: socket.socket, deadline: float, most_bytes: int) -> None:
        self._socket = connected
        self._deadline = deadline
        self._left = most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._socket.settimeout(_left(self._deadline))
        count = self._socket.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise ScrapeFailed(f"its page has more than {MOST_BYTES // 1_000_000} MB")
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return itself as HTTPResponse wants it of a socket."""
        return io.BufferedReader(self)


def _left(deadline: float) -> float:
    """Return how many seconds are left until `deadline`.

    Raises:
        TimeoutError: none are.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def fetch(target: Target, total_seconds: float = TOTAL_SECONDS) -> str:
    """Return the text of a page.

    Raises:
        ScrapeFailed: it is not there, not in time, too large, or no text.
    """
    try:
        return _fetch(target, time.monotonic() + total_seconds)
    except TimeoutError:
        raise ScrapeFailed(f"no whole answer within {total_seconds:g} s") from None
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "it failed"
        raise ScrapeFailed(f"TLS: {reason}") from None
    except (http.client.HTTPException, ValueError):
        raise ScrapeFailed(BROKEN) from None
    except OSError as error:
        raise ScrapeFailed(_words(error)) from None


def _words(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _fetch(target: Target, deadline: float) -> str:
    parts = urlsplit(target.url)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    with _connected(host, port, deadline) as plain:
        opened = plain
        if secure:
            opened = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        with opened:
            opened.sendall(_request(target, host, port))
            limited = _Limited(opened, deadline, MOST_BYTES)
            response = http.client.HTTPResponse(limited, method="GET")  # type: ignore[arg-type]
            response.begin()
            return _text(response)


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """Return a socket to the first of the host's addresses that accepts.

    Raises:
        NothingThere: none does.
    """
    try:
        found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    except OSError as error:
        raise NothingThere(_words(error)) from None
    refused = "the name has no address"
    for family, kind, protocol, _, address in found:
        opened = socket.socket(family, kind, protocol)
        try:
            opened.settimeout(_left(deadline))
            opened.connect(address)
        except OSError as error:
            opened.close()
            refused = _words(error)
        else:
            return opened
    raise NothingThere(refused)


def _request(target: Target, host: str, port: int) -> bytes:
    parts = urlsplit(target.url)
    # The root of a dcgm-exporter is a page for people.
    path = PAGE if parts.path in ("", "/") else parts.path
    where = path + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"GET {where} HTTP/1.1",
        f"Host: {f'[{host}]' if ':' in host else host}:{port}",
        "User-Agent: roofline-exporter",
        "Accept: text/plain",
        "Accept-Encoding: gzip",
        "Connection: close",
    ]
    if target.user is not None:
        pair = f"{target.user}:{target.password or ''}".encode()
        lines.append(f"Authorization: Basic {base64.b64encode(pair).decode()}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def _text(response: http.client.HTTPResponse) -> str:
    """Return the body of an answer, if it is one.

    Raises:
        ScrapeFailed: it is something else than a page of text.
    """
    if response.status != http.client.OK:
        raise ScrapeFailed(f"it answers {response.status}")
    if response.headers.get_content_type() != "text/plain":
        raise ScrapeFailed("its answer is not plain text")
    body = response.read()
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding == "gzip":
        body = _unpacked(body)
    elif encoding != "identity":
        raise ScrapeFailed("its answer is compressed in a way that was not asked for")
    return body.decode("utf-8", "replace")


def _unpacked(body: bytes) -> bytes:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        text = unpacker.decompress(body, MOST_BYTES + 1)
    except zlib.error:
        raise ScrapeFailed("its answer is not gzip") from None
    if len(text) > MOST_BYTES:
        raise ScrapeFailed(f"its page has more than {MOST_BYTES // 1_000_000} MB")
    if not unpacker.eof:
        raise ScrapeFailed(BROKEN)
    return text
