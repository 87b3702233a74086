# SPDX-License-Identifier: Apache-2.0
"""Cuts the bytes of a connection into heads of requests, parses one; writes that of an answer."""

from __future__ import annotations

import http
import re
from typing import Any
from urllib.parse import unquote

import httptools

from exporter.web.server.limits import Limits

_BLANK_LINE = re.compile(rb"\n\r?\n")
_TLS_HANDSHAKE = b"\x16"


class RequestRefused(Exception):
    """A request is answered with an error, and is the last of its connection."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        """Of `REQUEST_REFUSALS`."""


def _malformed(text: str = "this is no request of HTTP/1.1") -> RequestRefused:
    return RequestRefused(400, "malformed", text)


def take_head(received: bytearray, limits: Limits) -> bytes | None:
    """Remove the first head with its blank line and return it, or None until it is complete.

    Line breaks before it are dropped; RequestRefused says that it is too long, or TLS.
    """
    if received.startswith((b"\r", b"\n")):
        received[:] = received.lstrip(b"\r\n")
    if received.startswith(_TLS_HANDSHAKE):  # which need not have a blank line
        raise _malformed("this is TLS, and plain HTTP is served here")
    found = _BLANK_LINE.search(received)
    end = len(received) if found is None else found.end()
    if end > limits.head_bytes:
        raise RequestRefused(431, "head_size", f"the head has more than {limits.head_bytes} bytes")
    if found is None:
        return None
    head = bytes(received[:end])
    del received[:end]
    return head


class Request:
    """A request without a body, as httptools reads it."""

    def __init__(self, head: bytes, limits: Limits) -> None:
        """Parse a head; refuse a malformed one, one of too many fields, and a body."""
        self.headers: list[tuple[bytes, bytes]] = []
        self._target = b""
        self.keeps_alive = self._is_complete = False
        self._parser = parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # ignored, as HTTP allows
        except httptools.HttpParserError:
            raise _malformed() from None
        if not self._is_complete:
            raise _malformed()
        self.method: str = parser.get_method().decode("ascii")
        self.version: str = parser.get_http_version()
        self.keeps_alive = self.keeps_alive and self.version == "1.1"
        del self._parser  # which has a reference to this
        self._check(limits)
        try:
            url = httptools.parse_url(self._target)
            self.raw_path: bytes = url.path
            self.path = unquote(url.path.decode("ascii"))
        except (httptools.HttpParserError, UnicodeDecodeError, AttributeError):
            raise _malformed() from None
        self.query: bytes = url.query or b""

    def _check(self, limits: Limits) -> None:
        if len(self.headers) > limits.head_fields:
            most = limits.head_fields
            raise RequestRefused(431, "head_count", f"the head has more than {most} fields")
        if self.version not in ("1.1", "1.0"):
            raise _malformed("only HTTP/1.1 and 1.0 are spoken here")
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.version == "1.1"):
            raise _malformed("a request has one Host")
        for name, value in self.headers:
            if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 \t")):
                raise RequestRefused(413, "body", "nothing here reads a body")

    def scope(self, scheme: str, server: Any, client: Any) -> dict[str, Any]:
        """Return it as ASGI has it; `server` and `client` are addresses of sockets."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self.version,
            "server": server and tuple(server[:2]),
            "client": tuple(client[:2]),
            "scheme": scheme,
            "root_path": "",
            "method": self.method,
            "path": self.path,
            "raw_path": self.raw_path,
            "query_string": self.query,
            "headers": self.headers,
        }

    # httptools calls these.

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Note whether another request may follow."""
        self._is_complete = True
        self.keeps_alive = self._parser.should_keep_alive()


def head_bytes(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head of an answer."""
    phrase = http.HTTPStatus(status).phrase
    fields = b"".join(b"%b: %b\r\n" % field for field in headers)
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, phrase.encode(), fields)
