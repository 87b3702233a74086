# SPDX-License-Identifier: Apache-2.0
"""Where the daemon is, and what it answers to one GET; needs the standard library only."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporter.cli.config import Address, Parser, bracketed, shown
from exporter.errors import ConfigError, SourceError, one_line

CHUNK_BYTES = 65536

_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
_PORTS = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    url: str
    """The page that was asked for."""
    status: int
    body: bytes
    """Cut at the most that was asked for."""
    date: str | None = None
    """The Date header: the daemon's clock, by which its timestamps are."""


def add_url(parser: Parser) -> None:
    """Add the option that says where the daemon is."""
    parser.own.add_argument(
        "--url",
        metavar="URL",
        help="Where the daemon is. (default: this node, at web.listen-address)",
    )


def base_url(address: Address, command: str) -> str:
    """Return where a daemon on this node that listens there is reached."""
    if address.port == 0:
        raise ConfigError(f"{command}: web.listen-address has port 0, expected --url URL")
    return f"http://{bracketed(_LOOPBACK.get(address.host, address.host))}:{address.port}"


def get(
    url: str, path: str, *, connect_seconds: float, answer_seconds: float, most_bytes: int
) -> Answer:
    """Ask the daemon whose pages start at `url` for one of them.

    Goes there directly: no proxy that the environment names is asked. Raises SourceError, in one
    line that names the page, if no answer comes in time, and ConfigError if `url` is not a URL.
    """
    parts = urlsplit(_checked(url))
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    full_path = f"{parts.path.rstrip('/')}{path}"
    page = f"{parts.scheme}://{bracketed(host)}:{port}{full_path}"
    connection = _CONNECTIONS[parts.scheme](host, port, timeout=connect_seconds)
    try:
        connection.connect()
        deadline = time.monotonic() + answer_seconds
        connection.sock.settimeout(answer_seconds)
        connection.request("GET", full_path)
        response = connection.getresponse()
        body = _read(response, most_bytes, deadline)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SourceError(one_line(f"{page}: {reason}")) from error
    finally:
        connection.close()
    return Answer(page, response.status, body, response.getheader("Date"))


def _read(response: http.client.HTTPResponse, most_bytes: int, deadline: float) -> bytes:
    """Read piece by piece: a server that sends a byte at a time does not hold us up for long."""
    body = bytearray()
    while len(body) < most_bytes:
        piece = response.read1(min(CHUNK_BYTES, most_bytes - len(body)))
        if not piece:
            break
        body += piece
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
    return bytes(body)


def _checked(url: str) -> str:
    """Return the URL with its scheme, which may be left out."""
    full = url if "//" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        if parts.scheme in _CONNECTIONS and parts.hostname and parts.port != 0:
            return full
    except ValueError:
        pass
    raise ConfigError(f"--url: expected a URL such as http://127.0.0.1:19400, got {shown(url)}")
