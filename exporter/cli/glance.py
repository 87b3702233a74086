# SPDX-License-Identifier: Apache-2.0
"""``healthcheck`` in the plain case: the daemon answers over HTTP, at an address in digits.

A container runs it every half minute for as long as the daemon lives. So this needs nothing but
the interpreter: no flag table, no parser, no HTTP library, and of the socket only its part in C.
Whatever is not plain, and every answer but 200, is left to the command itself. Variables that do
not say where the daemon is are not looked at, for it has read the same ones.
"""

from __future__ import annotations

import _socket
import time
from collections.abc import Mapping, Sequence

SECONDS = 1.0
"""The command asks again after that, and must be done before the container's engine gives up."""
MAX_BYTES = 4096

_LISTENS, _URL, _READY = "web.listen-address", "url", "--ready"
_LISTENS_VARIABLE, _URL_VARIABLE = "ROOFLINE_WEB_LISTEN_ADDRESS", "ROOFLINE_URL"
_NOT_PLAIN = ("ROOFLINE_CONFIG_FILE", "ROOFLINE_WEB_CONFIG_FILE")
_DEFAULT = ":19400"


def is_well(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Print the daemon's answer and return True; or do neither, for the command to go on.

    `words` follow the command's name.
    """
    found = _where(words, environ)
    if found is None:
        return False
    host, port, path = found
    try:
        line = _ask(host, port, path)
    except (OSError, ValueError):
        return False
    if line is None:
        return False
    try:
        print(line, flush=True)
    except (OSError, ValueError):
        return False
    return True


def _where(words: Sequence[str], environ: Mapping[str, str]) -> tuple[str, int, str] | None:
    """Return host, port and path of what to ask, if flags and variables are plain."""
    if any(environ.get(name) for name in _NOT_PLAIN):
        return None
    if any(name.startswith(f"{_URL_VARIABLE}_") for name in environ):
        return None
    given = {_LISTENS: environ.get(_LISTENS_VARIABLE), _URL: environ.get(_URL_VARIABLE)}
    page, rest = "/-/healthy", list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word == _READY:
            page = "/-/ready"
        elif word.startswith("--") and name in given and (equals or rest):
            given[name] = value if equals else rest.pop(0)
            if name == _LISTENS and not given[name]:
                return None
        else:
            return None
    if given[_URL]:
        place = str(given[_URL]).removeprefix("http://").removesuffix("/")
        host, _, port = place.rpartition(":")
    else:
        host, _, port = (given[_LISTENS] or _DEFAULT).rpartition(":")
        host = host if host not in ("", "0.0.0.0") else "127.0.0.1"
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536 and len(port) <= 5):
        return None
    if not (host.isascii() and host.replace(".", "").isdecimal() and host.count(".") == 3):
        return None
    return host, int(port), page


def _ask(host: str, port: int, page: str) -> str | None:
    """Return the line about an answer with 200, else None."""
    deadline = time.monotonic() + SECONDS
    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        connection.settimeout(SECONDS)
        connection.connect((host, port))
        connection.sendall(
            f"GET {page} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
        )
        data = b""
        while part := connection.recv(MAX_BYTES):
            data += part
            if len(data) > MAX_BYTES or time.monotonic() > deadline:
                return None
    finally:
        connection.close()
    head, _, body = data.decode("ascii").partition("\r\n\r\n")
    status, _, headers = head.partition("\r\n")
    text = body.strip()
    if not status.startswith("HTTP/1.1 200 ") or "transfer-encoding" in headers.lower():
        return None
    line = f"http://{host}:{port}{page}: 200 {text}".rstrip()
    return line if line.isprintable() else None
